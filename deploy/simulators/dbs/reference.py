"""Reference data of DBS: tiers, groups, access types, primary datasets, eras and output configs.

Each ``insert_*`` takes a decoded body and is a no-op when the object exists (DBS answers 200 and ``[]`` to both).
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from collections.abc import Callable
from typing import Any

from deploy.simulators.dbs import errors
from deploy.simulators.dbs.context import LOOKUPS, Caller, find_id, require_id, require_text
from deploy.simulators.dbs.errors import Code, DbsError
from deploy.simulators.dbs.names import check_new_name
from deploy.simulators.dbs.payloads import Fields, decode

OUTPUT_CONFIG_FIELDS: Fields = {
    "app_name": str,
    "release_version": str,
    "pset_hash": str,
    "output_module_label": str,
    "global_tag": str,
    "pset_name": str,
    "creation_date": int,
    "create_by": str,
}
OUTPUT_CONFIG_KEY = ("app_name", "release_version", "pset_hash", "output_module_label", "global_tag")

FIELDS: dict[str, Fields] = {
    "datatiers": {"data_tier_name": str, "creation_date": int, "create_by": str},
    "physicsgroups": {"physics_group_name": str},
    "datasetaccesstypes": {"dataset_access_type": str},
    "primarydatasets": {"primary_ds_name": str, "primary_ds_type": str, "creation_date": int, "create_by": str},
    "acquisitioneras": {
        "acquisition_era_name": str,
        "start_date": int,
        "end_date": int,
        "creation_date": int,
        "create_by": str,
        "description": str,
    },
    "processingeras": {"processing_version": int, "creation_date": int, "create_by": str, "description": str},
    "outputconfigs": OUTPUT_CONFIG_FIELDS,
}

Insert = Callable[[sqlite3.Connection, dict[str, Any], Caller], int]


def insert_data_tier(db: sqlite3.Connection, record: dict[str, Any], caller: Caller) -> int:
    """A data tier; returns its id."""
    return _insert(
        db,
        "data_tier",
        record["data_tier_name"],
        creation_date=caller.date(record.get("creation_date")),
        create_by=caller.create_by,
    )


def insert_primary_dataset(db: sqlite3.Connection, record: dict[str, Any], caller: Caller) -> int:
    """A primary dataset, with its type when that is new; returns its id."""
    type_id = _insert(db, "primary_ds_type", record["primary_ds_type"])
    return _insert(
        db,
        "primary_dataset",
        record["primary_ds_name"],
        primary_ds_type_id=type_id,
        creation_date=caller.date(record["creation_date"]),
        create_by=caller.author(record["create_by"]),
    )


def insert_acquisition_era(db: sqlite3.Connection, record: dict[str, Any], caller: Caller) -> int:
    """An acquisition era; returns its id."""
    return _insert(
        db,
        "acquisition_era",
        record["acquisition_era_name"],
        start_date=record["start_date"],
        end_date=record["end_date"],
        creation_date=caller.date(record["creation_date"]),
        create_by=caller.author(record["create_by"]),
        description=record["description"],
    )


def insert_processing_era(db: sqlite3.Connection, record: dict[str, Any], caller: Caller) -> int:
    """A processing era; returns its id."""
    return _insert(
        db,
        "processing_era",
        record["processing_version"],
        creation_date=caller.date(record["creation_date"]),
        create_by=caller.author(record["create_by"]),
        description=record["description"],
    )


def insert_output_config(db: sqlite3.Connection, record: dict[str, Any], caller: Caller) -> int:
    """An output config (application, release, PSet hash, module, global tag); returns its id."""
    found = find_output_config(db, record)
    if found is not None:
        return found
    names = (*OUTPUT_CONFIG_KEY, "pset_name", "creation_date", "create_by")
    values = (
        *(record[key] for key in OUTPUT_CONFIG_KEY),
        record["pset_name"],
        caller.date(record["creation_date"]),
        caller.author(record["create_by"]),
    )
    sql = f"INSERT INTO output_configs ({', '.join(names)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    return int(db.execute(sql, values).lastrowid or 0)


def find_output_config(db: sqlite3.Connection, record: dict[str, Any]) -> int | None:
    """The id of the config with the same five values, or None."""
    where = " AND ".join(f"{key} = ?" for key in OUTPUT_CONFIG_KEY)
    values = [record[key] for key in OUTPUT_CONFIG_KEY]
    row = db.execute(f"SELECT output_mod_config_id FROM output_configs WHERE {where}", values).fetchone()
    return None if row is None else int(row[0])


def config_by_label(db: sqlite3.Connection, label: str, *, function: str) -> int:
    """The id of the first config with this output module label: all that POST ``/datasets`` and ``/files`` look at.

    Raises:
        DbsError: 413, there is none.
    """
    sql = "SELECT output_mod_config_id FROM output_configs WHERE output_module_label = ? ORDER BY output_mod_config_id"
    row = db.execute(sql, (label,)).fetchone()
    if row is None:
        message = f"unable to get output_module_config for {label}"
        raise errors.no_row(Code.GET_OUTPUT_CONFIG_ID, message, function=function)
    return int(row[0])


def _insert(db: sqlite3.Connection, kind: str, name: str | int, **columns: Any) -> int:
    found = find_id(db, kind, name)
    if found is not None:
        return found
    table, _, name_column = LOOKUPS[kind]
    keys = [name_column, *columns]
    marks = ", ".join("?" for _ in keys)
    return int(db.execute(f"INSERT INTO {table} ({', '.join(keys)}) VALUES ({marks})", (name, *columns.values())).lastrowid or 0)


_INSERTS: dict[str, Insert] = {
    "datatiers": insert_data_tier,
    "physicsgroups": lambda db, record, _: _insert(db, "physics_group", record["physics_group_name"]),
    "datasetaccesstypes": lambda db, record, _: _insert(db, "access_type", record["dataset_access_type"]),
    "primarydatasets": insert_primary_dataset,
    "acquisitioneras": insert_acquisition_era,
    "processingeras": insert_processing_era,
    "outputconfigs": insert_output_config,
}

# fields that must be there
_REQUIRED: dict[str, tuple[str, ...]] = {
    "datatiers": ("data_tier_name",),
    "physicsgroups": ("physics_group_name",),
    "datasetaccesstypes": ("dataset_access_type",),
    "primarydatasets": ("primary_ds_name", "primary_ds_type"),
    "acquisitioneras": ("acquisition_era_name",),
    "processingeras": (),
    "outputconfigs": ("app_name", "release_version", "pset_hash", "output_module_label", "global_tag"),
}


# names that are checked against the lexicon: a bad primary dataset or release is stored
_CHECKED = frozenset({"data_tier_name", "physics_group_name", "dataset_access_type", "acquisition_era_name"})


def post(db: sqlite3.Connection, api: str, body: Any, caller: Caller) -> None:
    """POST of one reference object.

    Raises:
        DbsError: 122 the body does not decode; 113, 317 or 327 a name is missing or does not match the lexicon.
    """
    function = f"dbs.{api}.Insert"
    record = decode(FIELDS[api], body, record=api, function=function)
    try:
        require_text(record, *_REQUIRED[api], what=api, function=function)
        for name in _REQUIRED[api]:
            if name in _CHECKED:
                check_new_name(name, record[name], api, function=function)
        if api == "processingeras" and record["processing_version"] <= 0:
            raise errors.left_out(api, "processing_version", function=function)
    except DbsError as error:
        raise _refused(api, error) from error
    _INSERTS[api](db, record, caller)


def _refused(api: str, cause: DbsError) -> DbsError:
    """A refused value in the layers that the API wraps it in."""
    if api == "datatiers":
        text = "unable to insert data tier record"
        invalid = DbsError(Code.VALIDATION, cause.message, function="dbs.tiers.Insert", reason=_innermost(cause).text())
        inner = invalid.wrapped(Code.INSERT, text, function="dbs.insertRecord")
        return inner.wrapped(Code.INSERT_DATA_TIER, text, function="dbs.tiers.InsertDataTiers")
    if api == "outputconfigs":
        text, function = "unable to insert output config record", "dbs.outputconfigs.InsertOutputConfigs"
        inner = cause.wrapped(Code.INSERT_OUTPUT_CONFIG, text, function=function)
        return inner.wrapped(Code.INSERT_OUTPUT_CONFIG, text, function=function)
    return cause


def _innermost(cause: DbsError) -> DbsError:
    return DbsError(Code.VALIDATION, cause.message, function="dbs.CheckPattern")


def update_acquisition_era(db: sqlite3.Connection, params: dict[str, str], caller: Caller) -> None:
    """PUT /acquisitioneras?acquisition_era_name=..&end_date=.. sets the end date.

    Raises:
        DbsError: 118 a parameter is missing or no number; 405 there is no such era.
    """
    function = "dbs.acquisitioneras.UpdateAcquisitionEras"
    name, end_date = params.get("acquisition_era_name", ""), params.get("end_date", "")
    if not name or not end_date.isdigit():
        raise DbsError(Code.PARAMETERS, "invalid acquisition_era_name or end_date parameter", function=function)
    message = f"unable to find acquisition_era_id for {name}"
    era_id = require_id(db, "acquisition_era", name, message, code=Code.GET_ACQUISITION_ERA_ID, function=function)
    db.execute(
        "UPDATE acquisition_eras SET end_date = ?, create_by = ? WHERE acquisition_era_id = ?",
        (int(end_date), caller.create_by, era_id),
    )
