"""ConfigCache: PSets and their output modules, in CouchDB (``model.md`` section 3, intake facts)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from wms2.adapters import wire
from wms2.adapters.http import Fault, HttpService, plain_fault
from wms2.adapters.types import ConfigDocument, OutputModule
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

SERVICE = "configcache"
_ATTACHMENT = "configFile"
_DOCUMENT = TypeAdapter(wire.ConfigCacheDocument)
_MODULE = TypeAdapter(wire.PsetOutputModule)
_ERROR = TypeAdapter(wire.CouchError)


def couch_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """CouchDB's ``{"error", "reason"}``."""
    try:
        error = _ERROR.validate_json(body)
    except ValidationError:
        return plain_fault(status, headers, body)
    return Fault(f"{error.error}: {error.reason}", error.error, NotFoundInService if error.error == "not_found" else None)


class ConfigCache:
    """All ConfigCaches a document may name.

    Args:
        connect: makes the connection to a base URL; called once per URL.
        base_url: if set, replaces the URL that documents name.
    """

    def __init__(self, connect: Callable[[str], HttpService], base_url: str = "") -> None:
        self._connect, self._base_url = connect, base_url
        self._services: dict[str, HttpService] = {}

    def config(self, base_url: str, database: str, config_id: str) -> ConfigDocument:
        """A PSet with its hash and output modules.

        Args:
            base_url: the document's ``ConfigCacheUrl``.
            database: its ``CouchDBName``.
            config_id: its ``ConfigCacheID``.

        Raises:
            NotFoundInService: no such database, document or attachment.
            ServiceRejected: the document has no output modules, or none of the hashes that DBS needs.
        """
        http = self._service(self._base_url or base_url)
        path = f"/{quote(database, safe='')}/{quote(config_id, safe='')}"
        answer = http.get_json(path, operation="config")
        document = wire.parse(_DOCUMENT, answer, service=SERVICE, operation="config")
        modules = _output_modules(document.pset_tweak_details, config_id)
        pset_hash = document.pset_hash or document.md5_hash
        if not pset_hash:
            raise ServiceRejected(SERVICE, "config", f"document {config_id} has neither pset_hash nor md5_hash")
        text = http.get_bytes(f"{path}/{_ATTACHMENT}", operation="config")
        try:
            pset = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ServiceRejected(SERVICE, "config", f"{_ATTACHMENT} of {config_id} is not UTF-8: {error}") from error
        if not pset.strip():
            raise ServiceRejected(SERVICE, "config", f"{_ATTACHMENT} of {config_id} is empty")
        return ConfigDocument(pset=pset, pset_hash=pset_hash, output_modules=modules)

    def _service(self, base_url: str) -> HttpService:
        if base_url not in self._services:
            self._services[base_url] = self._connect(base_url)
        return self._services[base_url]


def _output_modules(tweaks: Mapping[str, Any], config_id: str) -> tuple[OutputModule, ...]:
    """The modules listed in ``process.outputModules_``, in that order."""
    process = tweaks.get("process")
    labels = process.get("outputModules_") if isinstance(process, dict) else None
    if not isinstance(process, dict) or not isinstance(labels, list):
        raise ServiceRejected(
            SERVICE, "config", f"document {config_id} lists no output modules (pset_tweak_details.process.outputModules_)"
        )
    modules = []
    for label in labels:
        if label not in process:
            raise ServiceRejected(
                SERVICE, "config", f"document {config_id} lists output module {label!r} but does not describe it"
            )
        try:
            module = wire.parse(_MODULE, process[label], service=SERVICE, operation="config")
        except ServiceUnavailable as error:
            # The document is stored like that: asking again will not help.
            raise ServiceRejected(SERVICE, "config", f"document {config_id}, output module {label!r}: {error.detail}") from error
        dataset = module.dataset or wire.PsetDataset()
        modules.append(OutputModule(str(label), dataset.dataTier or "", dataset.filterName or ""))
    return tuple(modules)
