"""CouchDB as far as ConfigCache needs it: databases, documents with revisions, attachments.

Documents are kept whole; the attachment ``configFile`` of a ConfigCache document is the PSet's text. Answers and refusals
are CouchDB's (``{"error", "reason"}`` with 400, 404, 409, 412).
"""

import base64
import hashlib
import json
import sqlite3
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.simulators.httpd import Request, Response, json_response
from deploy.simulators.storage import Storage

SCHEMA = """
CREATE TABLE IF NOT EXISTS databases (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
  db TEXT NOT NULL REFERENCES databases, id TEXT NOT NULL, rev TEXT NOT NULL, deleted INTEGER NOT NULL DEFAULT 0,
  body TEXT NOT NULL,
  PRIMARY KEY (db, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attachments (
  db TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, content_type TEXT NOT NULL, revpos INTEGER NOT NULL,
  content BLOB NOT NULL,
  PRIMARY KEY (db, id, name));
INSERT OR IGNORE INTO databases VALUES ('reqmgr_config_cache'), ('workqueue_inbox'), ('workqueue');
"""
DEFAULT_DATABASE = "reqmgr_config_cache"
#: In a document of the work queue, what the element is.
ELEMENT = "WMCore.WorkQueue.DataStructs.WorkQueueElement.WorkQueueElement"


@dataclass(eq=False)
class CouchRefusal(Exception):
    """An answer of CouchDB that is not success."""

    status: int
    error: str
    reason: str


class CouchService:
    """State and HTTP handling of ``/couchdb``."""

    def __init__(self, path: Path) -> None:
        self.storage = Storage(path, SCHEMA)

    def handle(self, request: Request, parts: list[str]) -> Response:
        """Answer ``/<db>[/<id>[/<attachment>]]`` (``parts`` without the mount point)."""
        try:
            return self._route(request, parts)
        except CouchRefusal as refusal:
            return json_response({"error": refusal.error, "reason": refusal.reason}, status=refusal.status)

    def _route(self, request: Request, parts: list[str]) -> Response:
        read = request.method in ("GET", "HEAD")
        if not parts and read:
            return json_response({"couchdb": "Welcome", "version": "3.2.2", "vendor": {"name": "wms2-simulator"}})
        if parts == ["_all_dbs"] and read:
            return json_response([row[0] for row in self.storage.rows("SELECT name FROM databases ORDER BY name")])
        if len(parts) == 1:
            return self._database_info(parts[0]) if read else self._make_database(request, parts[0])
        self._require_database(parts[0])
        if parts[1] == "_all_docs" and len(parts) == 2:
            return self._all_docs(request, parts[0])
        if parts[:1] == ["workqueue"] and parts[1:] == ["_design", "WorkQueue", "_view", "elementsByWorkflow"]:
            return self._elements(request)
        if len(parts) == 2:
            return self._document(request, parts[0], parts[1])
        return self._attachment(request, parts[0], parts[1], "/".join(parts[2:]))

    def _require_database(self, db: str) -> None:
        if self.storage.row("SELECT 1 FROM databases WHERE name = ?", (db,)) is None:
            raise CouchRefusal(404, "not_found", "Database does not exist.")

    def _database_info(self, db: str) -> Response:
        self._require_database(db)
        count = self.storage.rows("SELECT count(*) FROM documents WHERE db = ? AND NOT deleted", (db,))[0][0]
        return json_response({"db_name": db, "doc_count": count})

    def _make_database(self, request: Request, db: str) -> Response:
        if request.method != "PUT":
            raise CouchRefusal(405, "method_not_allowed", "Only DELETE,GET,HEAD,POST,PUT allowed")
        with self.storage.writing() as connection:
            try:
                connection.execute("INSERT INTO databases VALUES (?)", (db,))
            except sqlite3.IntegrityError as error:
                raise CouchRefusal(412, "file_exists", "The database could not be created, the file already exists.") from error
        return json_response({"ok": True}, status=201)

    def _all_docs(self, request: Request, db: str) -> Response:
        query = dict(request.query)
        keys = (
            json.loads(request.plain_body() or b"{}").get("keys")
            if request.method == "POST"
            else json.loads(query.get("keys", "null"))
        )
        if keys is None:
            keys = [
                row[0] for row in self.storage.rows("SELECT id FROM documents WHERE db = ? AND NOT deleted ORDER BY id", (db,))
            ]
        rows: list[dict[str, Any]] = []
        for key in keys:
            document = self.find(db, key)
            if document is None:
                rows.append({"key": key, "error": "not_found"})
                continue
            row: dict[str, Any] = {"id": key, "key": key, "value": {"rev": document["_rev"]}}
            rows.append({**row, "doc": document} if query.get("include_docs") == "true" else row)
        return json_response({"total_rows": len(rows), "offset": 0, "rows": rows})

    def _elements(self, request: Request) -> Response:
        """The work queue's view by request, which has a reduce function."""
        query, keys = dict(request.query), json.loads(request.plain_body() or b"{}").get("keys")
        if query.get("reduce") != "false" or keys is None:
            raise CouchRefusal(400, "query_parse_error", "the simulator answers reduce=false with keys only")
        rows: list[dict[str, Any]] = []
        for (identifier,) in self.storage.rows("SELECT id FROM documents WHERE db = 'workqueue' AND NOT deleted ORDER BY id"):
            document = self.find("workqueue", identifier) or {}
            row = {"id": identifier, "key": document[ELEMENT]["RequestName"], "value": {"_id": identifier}}
            rows.append(row | ({"doc": document} if query.get("include_docs") == "true" else {}))
        rows = [row for key in keys for row in rows if row["key"] == key]
        return json_response({"total_rows": len(rows), "offset": 0, "rows": rows})

    def add(self, db: str, identifier: str, body: dict[str, Any]) -> None:
        """Store a document, unless it is there."""
        if self.find(db, identifier) is None:
            self._write(db, identifier, None, body=json.dumps(body), deleted=False)

    def find(self, db: str, identifier: str) -> dict[str, Any] | None:
        """The document with ``_id``, ``_rev`` and attachment stubs, or None (also when deleted)."""
        row = self.storage.row("SELECT * FROM documents WHERE db = ? AND id = ?", (db, identifier))
        if row is None or row["deleted"]:
            return None
        document: dict[str, Any] = {"_id": identifier, "_rev": row["rev"], **json.loads(row["body"])}
        stubs = {
            found["name"]: {
                "content_type": found["content_type"],
                "revpos": found["revpos"],
                "digest": "md5-" + base64.b64encode(hashlib.md5(found["content"], usedforsecurity=False).digest()).decode(),
                "length": len(found["content"]),
                "stub": True,
            }
            for found in self.storage.rows("SELECT * FROM attachments WHERE db = ? AND id = ? ORDER BY name", (db, identifier))
        }
        if stubs:
            document["_attachments"] = stubs
        return document

    def _missing(self, db: str, identifier: str) -> CouchRefusal:
        row = self.storage.row("SELECT deleted FROM documents WHERE db = ? AND id = ?", (db, identifier))
        return CouchRefusal(404, "not_found", "deleted" if row is not None and row["deleted"] else "missing")

    def _document(self, request: Request, db: str, identifier: str) -> Response:
        if request.method in ("GET", "HEAD"):
            document = self.find(db, identifier)
            if document is None:
                raise self._missing(db, identifier)
            return json_response(document, headers={"ETag": f'"{document["_rev"]}"'})
        if request.method == "PUT":
            return self._put_document(request, db, identifier)
        if request.method == "DELETE":
            rev = self._write(db, identifier, dict(request.query).get("rev"), body="{}", deleted=True)
            return json_response({"ok": True, "id": identifier, "rev": rev})
        raise CouchRefusal(405, "method_not_allowed", "Only DELETE,GET,HEAD,POST,PUT allowed")

    def _put_document(self, request: Request, db: str, identifier: str) -> Response:
        try:
            body = json.loads(request.plain_body())
        except ValueError as error:
            raise CouchRefusal(400, "bad_request", "invalid UTF-8 JSON") from error
        if not isinstance(body, dict):
            raise CouchRefusal(400, "bad_request", "Document must be a JSON object")
        given = body.pop("_rev", None) or dict(request.query).get("rev")
        for name in ("_id", "_attachments"):
            body.pop(name, None)
        rev = self._write(db, identifier, given, body=json.dumps(body), deleted=False)
        return json_response({"ok": True, "id": identifier, "rev": rev}, status=201, headers={"ETag": f'"{rev}"'})

    def _write(self, db: str, identifier: str, given_rev: str | None, *, body: str | None, deleted: bool) -> str:
        """A new revision; ``body`` None keeps the document (an attachment changed).

        Raises:
            CouchRefusal: 409, ``given_rev`` is not the document's revision.
        """
        with self.storage.writing() as connection:
            return self._new_revision(connection, db, identifier, given_rev, body=body, deleted=deleted)

    @staticmethod
    def _new_revision(
        connection: sqlite3.Connection, db: str, identifier: str, given_rev: str | None, *, body: str | None, deleted: bool
    ) -> str:
        row = connection.execute("SELECT rev, deleted, body FROM documents WHERE db = ? AND id = ?", (db, identifier)).fetchone()
        alive = row is not None and not row["deleted"]
        if (alive and given_rev != row["rev"]) or (not alive and (given_rev is not None or deleted)):
            raise CouchRefusal(409, "conflict", "Document update conflict.")
        generation = 1 if row is None else int(row["rev"].partition("-")[0]) + 1
        rev = f"{generation}-{uuid.uuid4().hex}"
        kept = body if body is not None else (row["body"] if alive else "{}")
        connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", (db, identifier, rev, int(deleted), kept))
        if deleted:
            connection.execute("DELETE FROM attachments WHERE db = ? AND id = ?", (db, identifier))
        return rev

    def _attachment(self, request: Request, db: str, identifier: str, name: str) -> Response:
        if request.method in ("GET", "HEAD"):
            if self.find(db, identifier) is None:
                raise self._missing(db, identifier)
            row = self.storage.row("SELECT * FROM attachments WHERE db = ? AND id = ? AND name = ?", (db, identifier, name))
            if row is None:
                raise CouchRefusal(404, "not_found", "Document is missing attachment")
            return Response(body=bytes(row["content"]), headers={"Content-Type": row["content_type"]})
        if request.method != "PUT":
            raise CouchRefusal(405, "method_not_allowed", "Only DELETE,GET,HEAD,PUT allowed")
        content, content_type = request.plain_body(), request.header("Content-Type") or "application/octet-stream"
        with self.storage.writing() as connection:
            rev = self._new_revision(connection, db, identifier, dict(request.query).get("rev"), body=None, deleted=False)
            row_values = (db, identifier, name, content_type, int(rev.partition("-")[0]), content)
            connection.execute("INSERT OR REPLACE INTO attachments VALUES (?, ?, ?, ?, ?, ?)", row_values)
        return json_response({"ok": True, "id": identifier, "rev": rev}, status=201)
