"""The release before this one goes on working on this one's tables, and sends its tasks to this one's workers (ADR 0028).

What that release has is recorded (``tests/support/former_release.py``). A failure here means: this change can only be made in two
releases (docs/development.md, Expand, then contract).
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.migrations import AddConstraint, AddIndex
from django.db.migrations.loader import MigrationLoader

from tests.support import former_release
from tests.support.former_release import Column

pytestmark = pytest.mark.django_db
FORMER: dict[str, Any] = former_release.read("release.json")
ROWS: dict[str, list[dict[str, Any]]] = former_release.read("rows.json")
TABLES: dict[str, dict[str, Column]] = {
    table: {name: Column(*facts) for name, facts in columns.items()} for table, columns in FORMER["tables"].items()
}
#: New or changed rules of tables that the former release writes, each with why that release keeps it: ``table.name``.
KEPT_BY_THE_FORMER: dict[str, str] = {
    "block_work_units.unit_in_block_once": "it puts a unit into one block of a dataset",
    "processing_blocks.one_unsealed_block_per_place": "it leaves one block of a dataset unsealed, and gives none an RSE before",
    "work_unit_claims.claim_of_a_file_names_it": "it writes the file of each claim of a file's events",
    "schedds.schedds_pool_6778950c_fk_pools_name": "it adds schedds by wms2_init alone, which an upgrade runs as the new release",
}
#: Indexes and constraints that may be made at once, since their tables have few rows.
OF_FEW_ROWS = {"one_systemic_alert_a_pool"}
#: Columns whose migration writes a table with rows anew, under a lock that keeps all others out: docs/runbook.md says how long.
WRITTEN_ANEW = {"requests.attention"}
#: Tables whose rows the former release adds and removes, and never changes.
NEVER_CHANGED = {"events"}
#: What a type may become: it takes every value of the former, and gives it back as the same.
_WIDER = {"smallint": {"integer", "bigint"}, "integer": {"bigint"}, "real": {"double precision"}}


def test_the_recorded_release_is_the_one_before_this() -> None:
    major, minor = former_release.version().split(".")
    assert FORMER["release"] == f"{major}.{int(minor) - 1}", "record it when a release is made: docs/development.md, Releases"


def test_no_table_or_column_is_gone_and_none_became_narrower() -> None:
    now = former_release.columns(list(TABLES))
    wrong = []
    for table, columns in TABLES.items():
        for name, former in columns.items():
            column = now.get(table, {}).get(name)
            if column is None:
                wrong.append(f"{table}.{name} is gone")
            elif not _wide_enough(former.type, column.type):
                wrong.append(f"{table}.{name} was {former.type}, is {column.type}")
            elif former.null and not column.null:
                wrong.append(f"{table}.{name} could be null")
    assert wrong == [], "first a release that does without it, then one that takes it away"


def test_what_was_added_to_a_table_may_be_left_out_of_an_insert() -> None:
    now = former_release.columns(list(TABLES))
    needed = [
        f"{table}.{name}"
        for table, columns in now.items()
        for name, column in columns.items()
        if name not in TABLES[table] and not (column.null or column.default or column.generated)
    ]
    assert needed == [], "the former release does not write them: null=True or db_default"


def test_no_rule_refuses_what_the_former_release_writes() -> None:
    now = former_release.columns(list(TABLES))
    refusing = [
        f"{table}.{name}: {definition}"
        for table, rules in former_release.rules(list(TABLES)).items()
        for name, definition in rules.items()
        if f"{table}.{name}" not in KEPT_BY_THE_FORMER
        and not _no_stricter(FORMER["rules"][table].get(name), definition)
        and not _only_of_what_was_added(now[table], table, definition)
    ]
    assert refusing == [], "drop it, or add it to KEPT_BY_THE_FORMER with the reason why that release keeps it"


def test_no_index_or_constraint_of_a_table_with_rows_is_made_under_a_long_lock() -> None:
    """Of migrations after the folded ones: workers of the former release write meanwhile."""
    found = []
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        for step in migration.operations if "_base" not in name else []:
            model = apps.all_models[app].get(str(getattr(step, "model_name", "")).lower())
            if model is None or model._meta.db_table not in TABLES or type(step) not in (AddIndex, AddConstraint):
                continue
            made = step.index.name if isinstance(step, AddIndex) else step.constraint.name
            found += [f"{app}.{name}: {made}"] if made not in OF_FEW_ROWS else []
    assert found == [], "AddIndexConcurrently; AddConstraintNotValid, in the next release ValidateConstraint"


def test_no_table_with_rows_is_written_anew() -> None:
    """By a column that is computed and stored, or one whose values become wider."""
    now = former_release.columns(list(TABLES))
    computed = {
        f"{table}.{name}" for table, columns in now.items() for name, column in columns.items()
        if column.generated and name not in TABLES[table]
    }  # fmt: skip
    wider = {
        f"{table}.{name}" for table, columns in TABLES.items() for name, former in columns.items()
        if now[table][name].type in _WIDER.get(former.type, ())
    }  # fmt: skip
    assert computed | wider == WRITTEN_ANEW, "fill it afterwards, or say how long it takes"


def test_no_word_that_the_former_release_writes_is_unknown() -> None:
    now = former_release.choices()
    unknown = {name: sorted(set(words) - set(now.get(name, []))) for name, words in FORMER["choices"].items()}
    assert {name: words for name, words in unknown.items() if words} == {}


def test_rows_are_written_read_changed_and_deleted_as_the_former_release_does() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        waiting = list(ROWS)
        while waiting:
            refused = {table: why for table in waiting if (why := _insert(cursor, table))}  # triggers look for other tables' rows
            assert len(refused) < len(waiting), refused
            waiting = list(refused)
        for table, rows in ROWS.items():
            assert table == "row_counts" or _read(cursor, table) >= _texts(rows), table  # triggers count in it
        for table in set(ROWS) - NEVER_CHANGED:
            kept = ", ".join(f'"{name}" = "{name}"' for name, column in TABLES[table].items() if not column.generated)
            cursor.execute(f'UPDATE "{table}" SET {kept}')
        for table in reversed(ROWS):
            cursor.execute(f'DELETE FROM "{table}"')
        transaction.set_rollback(True)  # whom rows refer to is judged at the commit: a few of each table do not have all of them


def test_tasks_of_the_former_release_are_known_with_what_it_gives_them() -> None:
    now = former_release.tasks()
    changed = {
        name: (given, now.get(name)) for name, given in FORMER["tasks"].items() if (now.get(name) or [])[: len(given)] != given
    }
    assert changed == {}, "a task of another name or with other parameters is another task"


def _insert(cursor: Any, table: str) -> str:
    """Its rows, with these columns alone, as a model of that release does; why it is refused."""
    listed = ", ".join(f'"{name}"' for name, column in TABLES[table].items() if not column.generated)
    try:
        with transaction.atomic():
            cursor.execute(f'DELETE FROM "{table}"')  # what migrations and triggers have put there
            for row in ROWS[table]:
                values = f'SELECT {listed} FROM json_populate_record(NULL::"{table}", %s)'
                cursor.execute(f'INSERT INTO "{table}" ({listed}) {values}', [json.dumps(row)])
    except DatabaseError as error:
        return str(error)
    return ""


def _read(cursor: Any, table: str) -> set[str]:
    listed = ", ".join(f'"{name}"' for name in TABLES[table])
    cursor.execute(f'SELECT row_to_json(t) FROM (SELECT {listed} FROM "{table}") t')
    return _texts([row for (row,) in cursor.fetchall()])


def _texts(rows: list[dict[str, Any]]) -> set[str]:
    return {json.dumps(row, sort_keys=True) for row in rows}


def _wide_enough(former: str, now: str) -> bool:
    length, longer = (re.fullmatch(r"character varying\((\d+)\)", each) for each in (former, now))
    if length:
        return now == "text" or (longer is not None and int(longer[1]) >= int(length[1]))
    return now == former or now in _WIDER.get(former, ())


def _no_stricter(former: str | None, now: str) -> bool:
    """The same, or a list of words that has become longer."""
    if former is None or former == now:
        return former == now
    plain = "CHECK" in now and "<>" not in now and "NOT" not in now
    return plain and _without_words(former) == _without_words(now) and set(_words(former)) <= set(_words(now))


def _only_of_what_was_added(now: dict[str, Column], table: str, definition: str) -> bool:
    """Of columns that the former release leaves out of its inserts; what it comes to then, its rows show."""
    own = re.sub(r" REFERENCES .*|'[^']*'", "", definition)
    named = {name for name in now if re.search(rf"\b{name}\b", own)}
    return bool(named) and not named & set(TABLES[table])


def _words(definition: str) -> list[str]:
    return re.findall(r"'([^']*)'", definition)


def _without_words(definition: str) -> str:
    return re.sub(r"'[^']*'(::character varying)?(, )?", "", definition)


@pytest.mark.parametrize(
    ("change", "found_by"),
    [
        ("ALTER TABLE sites DROP COLUMN slots_seen_at", test_no_table_or_column_is_gone_and_none_became_narrower),
        ("ALTER TABLE site_rses ALTER rse TYPE varchar(9)", test_no_table_or_column_is_gone_and_none_became_narrower),
        ("ALTER TABLE sites ALTER drain_until SET NOT NULL", test_no_table_or_column_is_gone_and_none_became_narrower),
        ("ALTER TABLE sites ADD zone integer NOT NULL", test_what_was_added_to_a_table_may_be_left_out_of_an_insert),
        ("ALTER TABLE sites ADD CHECK (total_slots < 9)", test_no_rule_refuses_what_the_former_release_writes),
        ("ALTER TABLE effects ADD few integer DEFAULT 9 CHECK (few < 9)",
         test_rows_are_written_read_changed_and_deleted_as_the_former_release_does),
    ],
)  # fmt: skip
def test_a_change_that_would_stop_the_former_release_is_found(change: str, found_by: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(change)
    with pytest.raises(AssertionError):
        found_by()
