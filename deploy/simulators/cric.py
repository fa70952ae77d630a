"""CRIC as far as WMS2 asks it: the presets ``site-names`` and ``data-processing`` of sites, and ``people`` of accounts.

Answers have CRIC's form ``{"desc": {"columns": [..]}, "result": [[..]]}``. A fresh state holds the rows of
``cric_rows.json``: the mock sites, a tape site, and the many-to-many pairs that make storage and processing names
differ.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import json
from pathlib import Path
from typing import Any

from deploy.simulators.httpd import Request, Response, json_response, text_response
from deploy.simulators.storage import Storage

SCHEMA = """
CREATE TABLE IF NOT EXISTS site_names (
  type TEXT NOT NULL, site_name TEXT NOT NULL, alias TEXT NOT NULL, rcsite_state TEXT NOT NULL DEFAULT 'ACTIVE',
  PRIMARY KEY (type, site_name, alias)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS data_processing (
  phedex_name TEXT NOT NULL, psn_name TEXT NOT NULL, rcsite_state TEXT NOT NULL DEFAULT 'ACTIVE',
  PRIMARY KEY (phedex_name, psn_name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS people (
  username TEXT PRIMARY KEY, email TEXT NOT NULL, forename TEXT NOT NULL, surname TEXT NOT NULL, dn TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seeded (at_start INTEGER PRIMARY KEY);
"""
COLUMNS = {
    "site_names": ("type", "site_name", "alias"),
    "data_processing": ("phedex_name", "psn_name"),
    "people": ("username", "email", "forename", "surname", "dn"),
}
DEFAULT_ROWS = Path(__file__).with_name("cric_rows.json")


class CricService:
    """State and HTTP handling of ``/api/cms/site/query/`` and ``/api/accounts/user/query/``."""

    def __init__(self, path: Path) -> None:
        self.storage = Storage(path, SCHEMA)
        if self.storage.row("SELECT 1 FROM seeded") is None:
            self.replace_rows(json.loads(DEFAULT_ROWS.read_text()))

    def replace_rows(self, tables: dict[str, Any]) -> dict[str, int]:
        """Put new rows in place of the old ones, for each table that is named; returns the numbers of rows.

        Raises:
            ValueError: an unknown table, or a row without one of the table's columns.
        """
        unknown = set(tables) - set(COLUMNS)
        if unknown:
            raise ValueError(f"cric: unknown tables {sorted(unknown)}; known are {sorted(COLUMNS)}")
        with self.storage.writing() as db:
            for table, rows in tables.items():
                names = COLUMNS[table] if table == "people" else (*COLUMNS[table], "rcsite_state")
                values = [self._values(table, row, names) for row in rows]
                db.execute(f"DELETE FROM {table}")
                db.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})", values)
            db.execute("INSERT OR IGNORE INTO seeded VALUES (1)")
        return {table: len(rows) for table, rows in tables.items()}

    @staticmethod
    def _values(table: str, row: dict[str, Any], names: tuple[str, ...]) -> list[str]:
        missing = [name for name in COLUMNS[table] if name not in row]
        if missing:
            raise ValueError(f"cric: {table}: row {row} lacks {missing}")
        return [str(row.get(name, "ACTIVE")) for name in names]

    def handle_sites(self, request: Request) -> Response:
        """``?json&preset=site-names|data-processing[&rcsite_state=ANY]``; without a preset a dict by site."""
        return self._handle(request, {"site-names": "site_names", "data-processing": "data_processing"})

    def handle_people(self, request: Request) -> Response:
        """``?json&preset=people``."""
        return self._handle(request, {"people": "people"})

    def _handle(self, request: Request, presets: dict[str, str]) -> Response:
        query = dict(request.query)
        if "json" not in query:  # CRIC shows a page to a query that does not ask for JSON
            return text_response("<html><body>Add ?json to the query.</body></html>\n", content_type="text/html; charset=utf-8")
        preset, state = query.get("preset", ""), query.get("rcsite_state", "ACTIVE")
        if not preset and "people" not in presets:
            return self._sites(state)
        if preset not in presets:
            return text_response(f"preset '{preset}' is not known\n", status=400)
        table, columns = presets[preset], COLUMNS[presets[preset]]
        where, values = ("", ()) if table == "people" or state == "ANY" else (" WHERE rcsite_state = ?", (state,))
        rows = self.storage.rows(f"SELECT {', '.join(columns)} FROM {table}{where} ORDER BY {', '.join(columns)}", values)
        return json_response({"desc": {"columns": list(columns)}, "result": [list(row) for row in rows]})

    def _sites(self, state: str) -> Response:
        rows = self.storage.rows("SELECT site_name, alias, rcsite_state FROM site_names WHERE type = 'cms' ORDER BY alias")
        return json_response(
            {
                row["alias"]: {"name": row["alias"], "rcsite_name": row["site_name"], "rcsite_state": row["rcsite_state"]}
                for row in rows
                if state in ("ANY", row["rcsite_state"])
            }
        )
