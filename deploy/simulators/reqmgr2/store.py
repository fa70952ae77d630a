"""Request documents in SQLite, with the look-up tables that stand for ReqMgr2's couch views.

An answer of a view is as old as the question before, to any view (CouchDB's ``stale=update_after``), with the documents as they
are now; what is asked for by name is never old.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.simulators.reqmgr2.states import elements_of
from deploy.simulators.storage import Storage

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (name TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS views (
  view TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL REFERENCES requests, PRIMARY KEY (view, key, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS views_of_request ON views (name);
CREATE TABLE IF NOT EXISTS unindexed (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""

Document = dict[str, Any]


class UnknownRequest(Exception):
    """There is no request of this name."""


class RequestStore:
    """All requests; each write is one transaction over the document and its look-up keys."""

    def __init__(self, path: Path) -> None:
        self.storage = Storage(path, SCHEMA)

    def insert(self, document: Document) -> bool:
        """Store a new request; False when the name is taken."""
        with self.storage.writing() as db:
            taken = db.execute("SELECT 1 FROM requests WHERE name = ?", (document["RequestName"],)).fetchone()
            if taken is None:
                _save(db, document)
        return taken is None

    def put(self, document: Document) -> None:
        """Store a document as it is, in whatever status (seeding); the views have it."""
        with self.storage.writing() as db:
            _save(db, document)
            _index(db, document)

    @contextmanager
    def changing(self, name: str) -> Iterator[Document]:
        """The document, stored again at the end; nothing is stored when an exception passes.

        Raises:
            UnknownRequest: there is none of this name.
        """
        with self.storage.writing() as db:
            row = db.execute("SELECT document FROM requests WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise UnknownRequest(name)
            document: Document = json.loads(row["document"])
            yield document
            _save(db, document)

    def by_names(self, names: Iterable[str]) -> dict[str, Document]:
        """The requests of these names; unknown names are left out."""
        return self._by("name", names)

    def in_statuses(self, statuses: Iterable[str]) -> dict[str, Document]:
        """The requests that are in one of these statuses now; for what ReqMgr2's own tasks do."""
        return self._by("document ->> 'RequestStatus'", statuses)

    def _by(self, column: str, values: Iterable[str]) -> dict[str, Document]:
        sql = f"SELECT name, document FROM requests WHERE {column} IN (SELECT value FROM json_each(?)) ORDER BY name"  # noqa: S608
        return {row["name"]: json.loads(row["document"]) for row in self.storage.rows(sql, (json.dumps(list(values)),))}

    def by_view(self, view: str, keys: Iterable[Any]) -> dict[str, Document]:
        """The requests that ``view`` listed under one of ``keys`` when a view was last asked; then all views are brought up to
        date."""
        rows = self.storage.rows(
            "SELECT DISTINCT r.name, r.document FROM views v JOIN requests r USING (name)"
            " WHERE v.view = ? AND v.key IN (SELECT value FROM json_each(?)) ORDER BY r.name",
            (view, json.dumps([json.dumps(key) for key in keys])),
        )
        with self.storage.writing() as db:
            for row in db.execute("SELECT r.document FROM unindexed JOIN requests r USING (name)").fetchall():
                _index(db, json.loads(row["document"]))
        return {row["name"]: json.loads(row["document"]) for row in rows}


def _save(db: sqlite3.Connection, document: Document) -> None:
    name = document["RequestName"]
    db.execute(
        "INSERT INTO requests VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET document = excluded.document",
        (name, json.dumps(document)),
    )
    db.execute("INSERT OR IGNORE INTO unindexed VALUES (?)", (name,))


def _index(db: sqlite3.Connection, document: Document) -> None:
    name = document["RequestName"]
    db.execute("DELETE FROM unindexed WHERE name = ?", (name,))
    db.execute("DELETE FROM views WHERE name = ?", (name,))
    db.executemany(
        "INSERT OR IGNORE INTO views VALUES (?, ?, ?)", [(view, json.dumps(key), name) for view, key in _view_keys(document)]
    )


def _view_keys(document: Document) -> Iterator[tuple[str, Any]]:
    status = document.get("RequestStatus")
    yield "bystatus", status
    yield "bytype", document.get("RequestType")
    yield "bystatusandrequestor", [status, document.get("Requestor")]
    if document.get("Team"):
        yield "byteamandstatus", [document["Team"], status]
    if document.get("Campaign"):
        yield "bycampaign", document["Campaign"]
    if document.get("RequestDate"):
        yield "bydate", document["RequestDate"][:4]
    for dataset in document.get("OutputDatasets") or []:
        yield "byoutputdataset", dataset
    for view, key in (
        ("byinputdataset", "InputDataset"),
        ("bymcpileup", "MCPileup"),
        ("bydatapileup", "DataPileup"),
        ("byprepid", "PrepID"),
    ):
        for part in (document, *elements_of(document).values()):
            if part.get(key) and part[key] != "None":
                yield view, part[key]
