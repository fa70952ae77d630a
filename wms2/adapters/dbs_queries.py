"""What is read from DBS, over one base URL (reader or writer; the writer serves the GETs too). Writes are in ``dbs``.

Large answers are streamed, one record a line (``Accept: application/ndjson``), and never held as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from pydantic import ValidationError

from wms2.adapters import wire
from wms2.adapters.dbs_names import SERVICE, check_name
from wms2.adapters.http import Fault, HttpService, Params, plain_fault
from wms2.adapters.types import BlockInfo, DatasetInfo, DbsFileInfo, FileLumi, FileParent, OutputConfig
from wms2.errors import ServiceRejected, ServiceUnavailable

_NDJSON = "application/ndjson"
_MAX_LIST_BYTES = 256 * 1024 * 1024
# A query that failed. As a nested cause it also means "there is no such row", so only the outer code counts.
_QUERY_CODE = 103
# DBS answers HTTP 400 for its own trouble too (database, transaction, rows, session, commit, body I/O, upstream HTTP): these say
# nothing about the request, wherever they stand in the chain of causes.
_TROUBLE_CODES = frozenset({101, 102, 104, 105, 106, 112, 120, 121, 124})
# What a write answers when the database itself is in trouble: the door's own code. The same codes carry refusals, whose cause is
# nested: a name or value that is not valid, or a row that is not there (docs/design/services.md, Errors).
_WRITE_CODES = frozenset({305, 308, 310, 314, 501, 502, 503})
_INVALID_CAUSES, _MISSING_CAUSES = frozenset({113, 118}), frozenset({400, 401, 410, 411, 412})
_NO_ROW = "no rows in result set"
_LOCKED = re.compile(r"database (table )?is locked|ORA-\d")
# These are the request's fault even where DBS answers HTTP 500 for them.
_OUR_FAULT_CODES = frozenset({107, 113, 114, 115, 117, 118, 119, 122, 123, 127})
_NESTED_CODE = re.compile(r"Code:\s*(\d+)")

_LAYER = re.compile(r"DBSError Code: \d+ Description: .*? Function: ")


def dbs_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """DBS's error body: its code and message, and whether the fault is the server's or ours."""
    try:
        records = wire.adapter(list[wire.DbsErrorRecord]).validate_json(body)
    except ValidationError:
        return plain_fault(status, headers, body)
    if not records:
        return plain_fault(status, headers, body)
    error = records[0].error
    # the concurrent bulkblocks repeats the reason in its message; the layers of causes are kept by their words alone
    reason = _LAYER.sub("", " ".join(error.reason.split()))
    parts = (error.function, error.message.partition("\n")[0].strip(), reason)
    nested = {int(code) for code in _NESTED_CODE.findall(error.reason)}
    kind: type[ServiceRejected | ServiceUnavailable] | None = None
    locked = _LOCKED.search(error.reason) is not None
    # a row that could not be looked for is not a row that is not there
    missing = (bool(nested & _MISSING_CAUSES) and not locked) or (error.code != _QUERY_CODE and _NO_ROW in error.reason)
    refused = bool(nested & _INVALID_CAUSES) or missing
    in_trouble = error.code in _WRITE_CODES or locked
    if not refused and (in_trouble or error.code == _QUERY_CODE or ({error.code} | nested) & _TROUBLE_CODES):
        kind = ServiceUnavailable
    elif error.code in _OUR_FAULT_CODES:
        kind = ServiceRejected
    return Fault(": ".join(part for part in parts if part), error.code or None, kind)


class DbsQueries:
    """Typed reads over one DBS base URL; what is many is streamed."""

    def __init__(self, http: HttpService) -> None:
        self._http = http

    def dataset(self, name: str) -> DatasetInfo | None:
        """The dataset whatever its access type, or None."""
        check_name("dataset", name, operation="dataset")
        # Without the wildcard only VALID datasets are listed: one in PRODUCTION looks missing.
        params: Params = {"dataset": name, "detail": 1, "dataset_access_type": "*"}
        return next((row for row in self._list(list[DatasetInfo], "/datasets", "dataset", params) if row.dataset == name), None)

    def configs_of_file(self, lfn: str) -> list[OutputConfig]:
        """How a file was made; none for one that DBS does not know."""
        return self._list(list[OutputConfig], "/outputconfigs", "output_configs", {"logical_file_name": lfn})

    def configs_of_dataset(self, name: str) -> list[OutputConfig]:
        """How the files of a dataset were made; none for one that DBS does not know."""
        check_name("dataset", name, operation="configs_of_dataset")
        return self._list(list[OutputConfig], "/outputconfigs", "configs_of_dataset", {"dataset": name})

    def block(self, name: str) -> BlockInfo | None:
        """The block, or None."""
        check_name("block_name", name, operation="block")
        rows = self._list(list[BlockInfo], "/blocks", "block", {"block_name": name, "detail": 1})
        return next((row for row in rows if row.block_name == name), None)

    def blocks(self, dataset: str) -> Iterator[BlockInfo]:
        """All blocks of a dataset."""
        check_name("dataset", dataset, operation="blocks")
        return self._stream(list[BlockInfo], "/blocks", "blocks", {"dataset": dataset, "detail": 1})

    def files(self, name: str, valid_only: bool = True, operation: str = "files") -> Iterator[DbsFileInfo]:
        """Files of a dataset or of a block (a name with ``#``).

        ``valid_only`` also leaves out all files of a dataset that is neither VALID nor PRODUCTION.
        """
        key = "block_name" if "#" in name else "dataset"
        check_name(key, name, operation=operation)
        return self._files({key: name, "validFileOnly": 1} if valid_only else {key: name}, operation)

    def valid_lfns(self, name: str, operation: str = "valid_lfns") -> Iterator[str]:
        """Names of the valid files of a dataset or of a block; none of a dataset that is neither VALID nor PRODUCTION."""
        key = "block_name" if "#" in name else "dataset"
        check_name(key, name, operation=operation)
        rows = self._stream(list[wire.DbsLfnRow], "/files", operation, {key: name, "validFileOnly": 1})
        return (row["logical_file_name"] for row in rows)

    def known_as(self, lfn: str, operation: str) -> Iterator[DbsFileInfo]:
        """The file of this name, valid or not."""
        return self._files({"logical_file_name": lfn}, operation)

    def _files(self, params: dict[str, str | int], operation: str) -> Iterator[DbsFileInfo]:
        return self._stream(list[DbsFileInfo], "/files", operation, params | {"detail": 1})

    def file_lumis(self, block_name: str) -> Iterator[FileLumi]:
        """Lumis of all files of a block. DBS keeps no event count for a lumi of 0 events: ``events`` may be None."""
        check_name("block_name", block_name, operation="file_lumis")
        rows = self._stream(list[wire.DbsFileLumiRow], "/filelumis", "file_lumis", {"block_name": block_name})
        return chain.from_iterable(_lumis(row) for row in rows)

    def file_parents(self, block_name: str) -> Iterator[FileParent]:
        """Parents of all files of a block."""
        check_name("block_name", block_name, operation="file_parents")
        return self._stream(list[FileParent], "/fileparents", "file_parents", {"block_name": block_name})

    def _list(self, shape: type[list[wire.T]], path: str, operation: str, params: Params) -> list[wire.T]:
        return self._http.get_json(shape, path, operation=operation, params=params)

    def _stream(self, shape: type[list[wire.T]], path: str, operation: str, params: Params) -> Iterator[wire.T]:
        read = self._http.stream_lines(path, operation=operation, params=params, accept=_NDJSON)
        first = next(read, None)
        if first is None:
            return
        if first[0].lstrip().startswith(b"["):
            # A server that does not stream answers one JSON list.
            values = self._whole_list(chain.from_iterable(chain([first], read)), operation)
            yield from wire.parse(shape, values, service=SERVICE, operation=operation)
            return
        for lines in chain([first], read):
            # many lines as one list: a call of the parser costs more than a line
            yield from wire.parse_json(shape, b"[%b]" % b",".join(lines), service=SERVICE, operation=operation)

    def _whole_list(self, lines: Iterable[bytes], operation: str) -> list[object]:
        text = bytearray()
        for line in lines:
            text += line
            if len(text) > _MAX_LIST_BYTES:
                raise ServiceRejected(SERVICE, operation, f"answer is larger than {_MAX_LIST_BYTES} bytes and not streamed")
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ServiceUnavailable(SERVICE, operation, f"answer is not JSON: {error}") from error
        if not isinstance(values, list):
            raise ServiceUnavailable(SERVICE, operation, "answer is not a list")
        return values


def _lumis(row: wire.DbsFileLumiRow) -> Iterable[FileLumi]:
    lfn, run, lumis, events = row["logical_file_name"], row["run_num"], row["lumi_section_num"], row.get("event_count")
    if isinstance(lumis, int) and not isinstance(events, list):
        return (FileLumi(lfn, run, lumis, events),)
    lumis = lumis if isinstance(lumis, list) else [lumis]
    events = events if isinstance(events, list) else [events] * len(lumis)
    if len(events) != len(lumis):
        detail = f"{lfn} run {run}: {len(lumis)} lumis but {len(events)} event counts"
        raise ServiceUnavailable(SERVICE, "file_lumis", detail)
    return [FileLumi(lfn, run, lumi, count) for lumi, count in zip(lumis, events, strict=True)]
