"""ConfigCache: PSets and their output modules, in CouchDB (docs/design/services.md, ConfigCache).

A PSet is code that runs at every site, and requests name where it comes from: only allowed ConfigCaches are asked, with our
certificate, and nothing that such a server answers becomes part of an error that a requester reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from wms2.adapters import wire
from wms2.adapters.http import Fault, HttpService
from wms2.adapters.types import ConfigDocument, OutputModule
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

SERVICE = "configcache"
_ATTACHMENT = "configFile"
_ERRORS = frozenset(
    {"not_found", "unauthorized", "forbidden", "illegal_database_name", "bad_request", "conflict", "internal_server_error"}
)
#: What is wrong with what a document names, or with what is there.
_refused = partial(ServiceRejected, SERVICE, "config")
_PORTS = {"http": 80, "https": 443}


def couch_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """CouchDB's ``{"error"}``, if it is one of its words; the rest of the answer is not shown."""
    try:
        error = wire.CouchError.model_validate_json(body).error
    except ValidationError:
        error = ""
    if error not in _ERRORS:
        return Fault("an error that is not CouchDB's")
    return Fault(error, error, NotFoundInService if error == "not_found" else None)


def normal_url(url: str) -> str:
    """A base URL in the one form in which it is compared, and asked. Raises ValueError: its port is no port."""
    parts = urlsplit(url)
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{(parts.hostname or '').lower()}{port}{parts.path.rstrip('/')}"


class ConfigCache:
    """All ConfigCaches a document may name: the ``allowed`` ones; a ``base_url`` replaces them. Each is connected to once."""

    def __init__(self, connect: Callable[[str], HttpService], base_url: str = "", *, allowed: Iterable[str] = ()) -> None:
        self._connect, self._base_url = cache(connect), base_url
        self._allowed = tuple(sorted({normal_url(url) for url in allowed}))

    def problem(self, base_url: str) -> str | None:
        """Why a document may not name this ConfigCache; None when it may."""
        with suppress(ValueError):
            if self._base_url or normal_url(base_url) in self._allowed:
                return None
        return f"is no ConfigCache that WMS2 asks; it asks {', '.join(self._allowed) or 'none'}"

    def config(self, base_url: str, database: str, config_id: str) -> ConfigDocument:
        """A PSet with its hash and output modules, by a document's ``ConfigCacheUrl``, ``CouchDBName`` and ``ConfigCacheID``.

        Raises:
            NotFoundInService: no such database, document or attachment.
            ServiceRejected: the URL is not an allowed one, or the document has no output modules, or none of the hashes that DBS
                needs.
        """
        problem = self.problem(base_url)
        if problem is not None:
            raise _refused(f"{base_url} {problem}")
        http = self._connect(self._base_url or normal_url(base_url))
        path = f"/{quote(database, safe='')}/{quote(config_id, safe='')}"
        try:
            document = wire.ConfigCacheDocument.model_validate_json(http.get_bytes(path, operation="config"))
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "document"
            raise ServiceUnavailable(SERVICE, "config", f"{config_id} is no ConfigCache document, see {where[:100]}") from None
        modules = _output_modules(document.pset_tweak_details, config_id)
        pset_hash = document.pset_hash or document.md5_hash
        if not pset_hash:
            raise _refused(f"document {config_id} has neither pset_hash nor md5_hash")
        text = http.get_bytes(f"{path}/{_ATTACHMENT}", operation="config")
        try:
            pset = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _refused(f"{_ATTACHMENT} of {config_id} is not UTF-8: {error}") from error
        if not pset.strip():
            raise _refused(f"{_ATTACHMENT} of {config_id} is empty")
        return ConfigDocument(pset=pset, pset_hash=pset_hash, output_modules=modules)


def _output_modules(tweaks: Mapping[str, Any], config_id: str) -> tuple[OutputModule, ...]:
    """The modules listed in ``process.outputModules_``, in that order."""
    process = tweaks.get("process")
    labels = process.get("outputModules_") if isinstance(process, dict) else None
    if not isinstance(process, dict) or not isinstance(labels, list):
        raise _refused(f"document {config_id} lists no output modules (pset_tweak_details.process.outputModules_)")
    modules = []
    for label in labels:
        if not isinstance(label, str) or label not in process:
            raise _refused(f"document {config_id} lists output module {_shown(label)} but does not describe it")
        try:
            module = wire.parse(wire.PsetOutputModule, process[label], service=SERVICE, operation="config")
        except ServiceUnavailable as error:
            # The document is stored like that: asking again will not help. What it holds instead is not shown.
            problem = f"document {config_id}, output module {_shown(label)}: it is not described as one"
            raise _refused(problem) from error
        dataset = module.dataset or wire.PsetDataset()
        modules.append(OutputModule(label, dataset.dataTier or "", dataset.filterName or ""))
    return tuple(modules)


def _shown(label: object) -> str:
    return repr(label)[:100]
