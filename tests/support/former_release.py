"""What the release before this one reads and writes, recorded when it was made (docs/development.md, Releases).

``tests/data/former_release``: ``release.json`` has its tables, rules of the database, words of its choices and Celery's tasks,
``rows.json`` rows as it writes them, ``schemas/`` the schemas of its files, ``files/`` files that it wrote.
``WMS2_RECORD_RELEASE=1`` writes them anew, of this release.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection, models

from tests.support.places import ROOT
from wms2.celery import app

FOLDER = ROOT / "tests/data/former_release"
RECORDING = os.environ.get("WMS2_RECORD_RELEASE") == "1"
APPS = ("wms2", "sites_app", "dags_app", "outputs_app", "requests_app")
_ROWS_OF_A_TABLE = 3

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attgenerated <> ''
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relname = ANY(%s) AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, a.attnum
"""
_RULES = """
SELECT c.relname, r.conname, pg_get_constraintdef(r.oid) FROM pg_constraint r JOIN pg_class c ON c.oid = r.conrelid
WHERE c.relname = ANY(%(tables)s) AND r.contype IN ('c', 'u', 'x', 'f')
UNION
SELECT tablename, indexname, regexp_replace(indexdef, '^CREATE UNIQUE INDEX .* USING ', 'UNIQUE ') FROM pg_indexes
WHERE tablename = ANY(%(tables)s) AND indexdef LIKE 'CREATE UNIQUE%%' ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table; ``default``: an INSERT may leave it out. ``generated``: one must."""

    type: str
    null: bool
    default: bool
    generated: bool


def version() -> str:
    """This release's, major and minor."""
    full: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return ".".join(full.split(".")[:2])


def tables() -> list[str]:
    """Ours, as the models have them, without views."""
    every = (model for name in APPS for model in apps.get_app_config(name).get_models(include_auto_created=True))
    return [model._meta.db_table for model in every if model._meta.managed]


def columns(of: list[str]) -> dict[str, dict[str, Column]]:
    """By table and name, as the database has them."""
    found: dict[str, dict[str, Column]] = {}
    for table, name, *facts in _asked(_COLUMNS, [of]):
        found.setdefault(table, {})[name] = Column(*facts)
    return found


def rules(of: list[str]) -> dict[str, dict[str, str]]:
    """Constraints and unique indexes, by table and name, in the database's words."""
    found: dict[str, dict[str, str]] = {table: {} for table in of}
    for table, name, definition in _asked(_RULES, {"tables": of}):
        found[table][name] = definition
    return found


def choices() -> dict[str, list[str]]:
    """The words that a column may have, by ``table.column``."""
    every = (model for name in APPS for model in apps.get_app_config(name).get_models())
    fields = (field for model in every for field in model._meta.concrete_fields if isinstance(field, models.CharField))
    return {f"{f.model._meta.db_table}.{f.column}": [str(value) for value, _ in f.flatchoices] for f in fields if f.choices}


def tasks() -> dict[str, list[str]]:
    """Names of the parameters of each Celery task, by its name."""
    app.loader.import_default_modules()
    ours = {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}
    return {name: list(inspect.signature(task.run).parameters) for name, task in sorted(ours.items())}


def record_rows(directory: Path) -> None:
    """Write what this release's tables are like, with some of the rows that are in them now; they name ``directory``."""
    names = tables()
    written = columns(names)
    release = {
        "release": version(),
        "tables": {
            table: {name: [c.type, c.null, c.default, c.generated] for name, c in written[table].items()} for table in names
        },
        "rules": rules(names),
        "choices": choices(),
        "tasks": tasks(),
    }
    _write("release.json", release, directory)
    some = f"SELECT coalesce(json_agg(t), '[]') FROM (SELECT * FROM %s LIMIT {_ROWS_OF_A_TABLE}) t"
    _write("rows.json", {table: _asked(some % connection.ops.quote_name(table))[0][0] for table in names}, directory)
    shutil.copytree(ROOT / "docs/schemas", FOLDER / "schemas", dirs_exist_ok=True)


def read(name: str) -> Any:
    """A recorded document."""
    return json.loads((FOLDER / name).read_text())


def _write(name: str, content: dict[str, Any], directory: Path) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1).replace(str(directory), "/recorded")
    (FOLDER / name).write_text(re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", _in_a_line, text) + "\n")


def _in_a_line(several: re.Match[str]) -> str:
    return f"[{' '.join(several[1].split())}]" if len(several[1]) < 2000 else several[0]


def _asked(sql: str, parameters: Any = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())
