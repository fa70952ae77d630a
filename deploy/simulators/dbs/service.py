"""The HTTP face of the simulated DBS: ``.../DBSReader`` (GET, look-up POST) and ``.../DBSWriter`` (writes, and the GETs too)."""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from deploy.simulators.dbs import bulkblocks, datasets, files, reference
from deploy.simulators.dbs.context import Caller
from deploy.simulators.dbs.dump import blockdump
from deploy.simulators.dbs.errors import Code, DbsError, error_response
from deploy.simulators.dbs.generate import generate
from deploy.simulators.dbs.params import Params, parse_payload, parse_query
from deploy.simulators.dbs.payloads import parse_json
from deploy.simulators.dbs.schema import SCHEMA
from deploy.simulators.dbs.summaries import QUERIES
from deploy.simulators.httpd import STREAM_CHUNK_BYTES, BadRequestBody, Request, Response, gzip_stream, text_response
from deploy.simulators.storage import Storage

Role = Literal["DBSReader", "DBSWriter"]
BulkblocksMode = Literal["concurrent", "sequential"]

LOOKUP_POSTS = {"fileArray": "files", "filelumis": "filelumis", "blockparents": "blockparents", "datasetlist": "datasets"}
# writes of one transaction; ``files`` makes one for each file, ``bulkblocks`` knows two modes
_POSTS: dict[str, Callable[[sqlite3.Connection, Any, Caller], None]] = {
    **{api: partial(reference.post, api) for api in reference.REFERENCES},
    "datasets": datasets.post_dataset,
    "blocks": datasets.post_block,
    "fileparents": files.post_file_parents,
}
WRITE_POSTS = (*_POSTS, "files", "bulkblocks")
_PUTS = {
    "datasets": datasets.put_dataset,
    "blocks": datasets.put_block,
    "files": files.put_files,
    "acquisitioneras": reference.update_acquisition_era,
}
_DECODERS = {
    "datasets": ("dbs.datasets.InsertDatasets", "unable to decode dataset record"),
    "blocks": ("dbs.blocks.InsertBlocks", "unable to decode block record"),
    "files": ("dbs.files.InsertFiles", "unable to decode file record"),
}


class DbsService:
    """State and HTTP handling of one DBS instance."""

    def __init__(self, path: Path, mode: BulkblocksMode = "concurrent") -> None:
        self.storage = Storage(path, SCHEMA)
        self._mode = mode

    def handle(self, request: Request, role: Role, api: str) -> Response:
        """Answer one call to ``<role>/<api>``."""
        try:
            return self._route(request, role, api)
        except DbsError as error:
            return error_response(error, request)
        except sqlite3.OperationalError as error:  # a locked file, where no door has a code of its own for it
            trouble = DbsError(Code.INSERT, "unable to insert record", function=f"dbs.{api}", reason=str(error))
            return error_response(trouble, request)

    def _route(self, request: Request, role: Role, api: str) -> Response:
        if request.method in ("GET", "HEAD"):
            return self._get(request, api)
        if request.method == "POST" and (api in LOOKUP_POSTS or (role == "DBSWriter" and api in WRITE_POSTS)):
            return self._post(request, api)
        if request.method == "PUT" and role == "DBSWriter" and api in _PUTS:
            return self._put(request, api)
        known = api in QUERIES or api in LOOKUP_POSTS or api in WRITE_POSTS
        return Response(status=405) if known else text_response("404 page not found\n", status=404)

    def _get(self, request: Request, api: str) -> Response:
        if api == "healthz":
            return _records(request, [{"status": 200}])
        if api == "metrics":
            return text_response(self._metrics())
        if api == "blockdump":
            names = parse_query(api, request.query).get("block_name", [])
            record = blockdump(self.storage, names[0] if names else None)
            return Response(body=json.dumps(record).encode(), headers={"Content-Type": "application/json"})
        if api not in QUERIES:
            return text_response("404 page not found\n", status=404)
        return self._answer(request, api, parse_query(api, request.query))

    def _answer(self, request: Request, api: str, params: Params) -> Response:
        query = QUERIES[api](params)
        rows = self.storage.stream_json(query.sql, query.values)
        try:
            first = next(rows, None)  # a query that fails must fail before the answer begins
        except sqlite3.Error as error:
            raise DbsError(Code.QUERY, "fail to query", function=f"dbs.{api}", reason=str(error)) from error
        return _streamed(request, rows if first is None else itertools.chain((first,), rows))

    def _post(self, request: Request, api: str) -> Response:
        content_type = request.header("Content-Type")
        if content_type != "application/json":
            message = f"unsupported Content-Type: '{content_type}'"
            raise DbsError(Code.CONTENT_TYPE, message, function="web.DBSPostHandler", reason="content-type error", status=415)
        try:
            raw = request.plain_body()
        except BadRequestBody as error:
            message = "unable to get gzip reader"
            raise DbsError(Code.READER, message, function="web.DBSPostHandler", reason=str(error), status=500) from error
        if api in LOOKUP_POSTS:
            return self._answer(request, LOOKUP_POSTS[api], self._lookup(api, raw))
        function, message = _DECODERS.get(api, (f"dbs.{api}", ""))
        body, caller = parse_json(raw, function=function, message=message), _caller(request)
        if api == "files":
            files.post_files(self.storage, body, caller)
            return _records(request, [])
        with self.storage.writing() as db:
            if api == "bulkblocks":
                bulkblocks.post_bulkblock(db, body, caller, concurrent=self._mode == "concurrent")
            else:
                _POSTS[api](db, body, caller)
        return _records(request, [])

    @staticmethod
    def _lookup(api: str, raw: bytes) -> Params:
        params = parse_payload(_decode_object(raw))
        if api == "datasetlist":
            params.setdefault("dataset_access_type", ["*"])
        return params

    def _put(self, request: Request, api: str) -> Response:
        # blocks and eras are updated by the query string alone, datasets and files need a body as well
        params: dict[str, Any] = dict(reversed(request.query))
        if api in ("datasets", "files"):
            params.update(_decode_object(request.plain_body()))
        with self.storage.writing() as db:
            _PUTS[api](db, params, _caller(request))
        return _records(request, [])

    def _metrics(self) -> str:
        counts = {table: self.storage.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("datasets", "blocks", "files")}
        return "".join(f"dbs_simulator_{name} {count}\n" for name, count in counts.items())

    def dataset_exists(self, name: str) -> bool:
        """Whether DBS has the dataset, of whatever access type (ReqMgr2 asks so about input datasets)."""
        return bool(self.storage.row("SELECT 1 FROM datasets WHERE dataset = ?", (name,)))

    def has_parents(self, name: str) -> bool:
        """Whether the dataset has a parent dataset."""
        query = QUERIES["datasetparents"]({"dataset": [name]})
        return self.storage.row(query.sql, query.values) is not None

    def data_tiers(self) -> set[str]:
        """The names of all data tiers (ReqMgr2 refuses to assign output of an unknown tier)."""
        return {row[0] for row in self.storage.rows("SELECT data_tier_name FROM data_tiers")}

    def seed_generated(self, record: dict[str, Any]) -> int:
        """Make one large dataset from its specification; returns the number of files made.

        Raises:
            ValueError, TypeError: the specification is wrong or collides with what is there.
        """
        with self.storage.writing() as db:
            return generate(db, record)


def _decode_object(raw: bytes) -> dict[str, Any]:
    try:
        value, reason = json.loads(raw), "json: cannot unmarshal into Go value of type dbs.Record"
    except ValueError as error:
        value, reason = None, str(error) if raw else "EOF"
    if not isinstance(value, dict):
        message = "unable to decode HTTP post payload"
        raise DbsError(Code.DECODE, message, function="web.parsePayload", reason=reason, status=500)
    return value


def _caller(request: Request) -> Caller:
    for header in ("Cms-Auth-Cert", "Cms-Authn-Login", "Cms-Authn-Dn"):
        if request.header(header):
            return Caller(request.header(header))
    return Caller("DBS-workflow")


def _records(request: Request, records: list[dict[str, Any]]) -> Response:
    """A few records as an answer."""
    return _streamed(request, (json.dumps(record) for record in records))


def _streamed(request: Request, records: Iterable[str]) -> Response:
    """JSON texts as a JSON list, or one per line for ``Accept: application/ndjson``; streamed either way."""
    lines = request.header("Accept") == "application/ndjson"
    body: Iterable[bytes] = _batches(_ndjson(records) if lines else _json_list(records))
    headers = {"Content-Type": "application/ndjson" if lines else "application/json"}
    if "gzip" in request.header("Accept-Encoding").lower():
        body = gzip_stream(body)
        headers["Content-Encoding"] = "gzip"
    return Response(body=body, headers=headers)


def _ndjson(records: Iterable[str]) -> Iterator[str]:
    for record in records:
        yield record + "\n"


def _json_list(records: Iterable[str]) -> Iterator[str]:
    separator = "[\n"
    for record in records:
        yield separator + record + "\n"
        separator = ","
    yield "]\n" if separator == "," else "[]"


def _batches(parts: Iterator[str]) -> Iterator[bytes]:
    """Pieces of about 64 KiB, so that a record is not a chunk of its own on the wire."""
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= STREAM_CHUNK_BYTES:
            yield "".join(held).encode()
            held, size = [], 0
    if held:
        yield "".join(held).encode()
