"""What one DBS call knows about its caller and its time, and the rows by name that every write needs."""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deploy.simulators.dbs.errors import Code, DbsError, left_out, no_row

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """``create_by`` is what the front end says about the caller; ``at`` is the time of the call in seconds."""

    create_by: str
    at: int = field(default_factory=lambda: int(time.time()))

    def signed(self, record: Record) -> Record:
        """The record with its author and dates: those that it names, else the caller and now. It is always modified now."""
        values = {"creation_date": record.get("creation_date") or self.at}
        values |= {name: str(record.get(name) or self.create_by) for name in ("create_by", "last_modified_by")}
        values["last_modification_date"] = self.at
        return {**record, **{name: value for name, value in values.items() if name in record}}


# table, id column, name column: only these constants are put into SQL text
LOOKUPS = {
    "data_tier": ("data_tiers", "data_tier_id", "data_tier_name"),
    "physics_group": ("physics_groups", "physics_group_id", "physics_group_name"),
    "access_type": ("dataset_access_types", "dataset_access_type_id", "dataset_access_type"),
    "primary_ds_type": ("primary_ds_types", "primary_ds_type_id", "primary_ds_type"),
    "primary_dataset": ("primary_datasets", "primary_ds_id", "primary_ds_name"),
    "acquisition_era": ("acquisition_eras", "acquisition_era_id", "acquisition_era_name"),
    "processing_era": ("processing_eras", "processing_era_id", "processing_version"),
    "dataset": ("datasets", "dataset_id", "dataset"),
    "block": ("blocks", "block_id", "block_name"),
    "file": ("files", "file_id", "logical_file_name"),
    "file_type": ("file_data_types", "file_type_id", "file_type"),
}


def insert_row(db: sqlite3.Connection, table: str, columns: Record) -> int:
    """A new row; returns its id."""
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"
    return int(db.execute(sql, tuple(columns.values())).lastrowid or 0)


def link(db: sqlite3.Connection, table: str, this_id: int, other_id: int) -> None:
    """A pair of a table of pairs, once."""
    db.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", (this_id, other_id))


def find_id(db: sqlite3.Connection, kind: str, name: str | int) -> int | None:
    """The id of the object called ``name``, or None."""
    table, id_column, name_column = LOOKUPS[kind]
    row = db.execute(f"SELECT {id_column} FROM {table} WHERE {name_column} = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def require_id(db: sqlite3.Connection, kind: str, name: str | int, message: str, *, code: Code, function: str) -> int:
    """The id of the object called ``name``.

    Raises:
        DbsError: ``code`` and ``message``, there is no such object.
    """
    found = find_id(db, kind, name)
    if found is None:
        raise no_row(code, message, function=function)
    return found


def find_or_insert(db: sqlite3.Connection, kind: str, name: str | int, **columns: Any) -> int:
    """The id of the object called ``name``; made of ``columns`` when missing (``bulkblocks`` does so with reference data)."""
    found = find_id(db, kind, name)
    table, _, name_column = LOOKUPS[kind]
    return insert_row(db, table, {name_column: name, **columns}) if found is None else found


@contextmanager
def failing_as(code: Code, message: str, *, function: str) -> Iterator[None]:
    """A database that does not take the change is reported under this code; only the reason says that it is in trouble.

    Raises:
        DbsError: ``code``.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise DbsError(code, message, function=function, reason=str(error)) from error


def require_text(record: Record, *names: str, what: str, function: str) -> None:
    """Fields that must not be empty.

    Raises:
        DbsError: 113, naming the empty field.
    """
    for name in names:
        if not record[name]:
            raise left_out(what, name, function=function)
