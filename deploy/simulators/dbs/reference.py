"""Reference data of DBS: tiers, groups, access types, primary datasets, eras and output configs.

What exists is left as it is (DBS answers 200 and ``[]`` to both).
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from dataclasses import dataclass
from typing import Any

from deploy.simulators.dbs import errors
from deploy.simulators.dbs.context import LOOKUPS, Caller, Record, find_or_insert, insert_row, require_id, require_text
from deploy.simulators.dbs.errors import Code, DbsError, bad_parameter
from deploy.simulators.dbs.names import check_new_name
from deploy.simulators.dbs.payloads import Fields, decode

_CONFIG_KEY: Fields = dict.fromkeys(("app_name", "release_version", "pset_hash", "output_module_label", "global_tag"), str)
_MADE: Fields = {"creation_date": int, "create_by": str}
OUTPUT_CONFIG_FIELDS: Fields = {**_CONFIG_KEY, "pset_name": str, **_MADE}


@dataclass(frozen=True, slots=True)
class Reference:
    """What one API takes. ``kind`` as in ``LOOKUPS``; a bad primary dataset or release is stored, other names are ``checked``."""

    kind: str
    fields: Fields
    required: tuple[str, ...]
    checked: bool = True


REFERENCES = {
    "datatiers": Reference("data_tier", {"data_tier_name": str, **_MADE}, ("data_tier_name",)),
    "physicsgroups": Reference("physics_group", {"physics_group_name": str}, ("physics_group_name",)),
    "datasetaccesstypes": Reference("access_type", {"dataset_access_type": str}, ("dataset_access_type",)),
    "primarydatasets": Reference(
        "primary_dataset",
        {"primary_ds_name": str, "primary_ds_type": str, **_MADE},
        ("primary_ds_name", "primary_ds_type"),
        checked=False,
    ),
    "acquisitioneras": Reference(
        "acquisition_era",
        {"acquisition_era_name": str, "start_date": int, "end_date": int, **_MADE, "description": str},
        ("acquisition_era_name",),
    ),
    "processingeras": Reference("processing_era", {"processing_version": int, **_MADE, "description": str}, ()),
    "outputconfigs": Reference("", OUTPUT_CONFIG_FIELDS, tuple(_CONFIG_KEY), checked=False),
}


def insert(db: sqlite3.Connection, api: str, record: Record, caller: Caller) -> int:
    """An object of reference data as ``api`` takes it; returns its id."""
    columns = caller.signed(record)
    if api == "outputconfigs":
        found = find_output_config(db, record)
        return insert_row(db, "output_configs", columns) if found is None else found
    kind = REFERENCES[api].kind
    if kind == "primary_dataset":
        columns["primary_ds_type_id"] = find_or_insert(db, "primary_ds_type", columns.pop("primary_ds_type"))
    return find_or_insert(db, kind, columns.pop(LOOKUPS[kind][2]), **columns)


def find_output_config(db: sqlite3.Connection, record: Record) -> int | None:
    """The id of the config with the same five values, or None."""
    where = " AND ".join(f"{key} = ?" for key in _CONFIG_KEY)
    values = [record[key] for key in _CONFIG_KEY]
    row = db.execute(f"SELECT output_mod_config_id FROM output_configs WHERE {where}", values).fetchone()
    return None if row is None else int(row[0])


def config_of_file(db: sqlite3.Connection, record: Record) -> int | None:
    """The id of the first config with these values but for the release, or None: all that ``bulkblocks`` looks at for a file."""
    keys = [key for key in _CONFIG_KEY if key != "release_version"]
    where = " AND ".join(f"{key} = ?" for key in keys)
    sql = f"SELECT output_mod_config_id FROM output_configs WHERE {where} ORDER BY output_mod_config_id"
    row = db.execute(sql, [record[key] for key in keys]).fetchone()
    return None if row is None else int(row[0])


def config_by_label(db: sqlite3.Connection, label: str, *, function: str) -> int:
    """The id of the first config with this output module label: all that POST ``/datasets`` and ``/files`` look at.

    Raises:
        DbsError: 413, there is none.
    """
    sql = "SELECT output_mod_config_id FROM output_configs WHERE output_module_label = ? ORDER BY output_mod_config_id"
    row = db.execute(sql, (label,)).fetchone()
    if row is None:
        raise errors.no_row(Code.GET_OUTPUT_CONFIG_ID, f"unable to get output_module_config for {label}", function=function)
    return int(row[0])


def post(api: str, db: sqlite3.Connection, body: Any, caller: Caller) -> None:
    """POST of one reference object.

    Raises:
        DbsError: 122 the body does not decode; 113, 317 or 327 a name is missing or does not match the lexicon.
    """
    function, reference = f"dbs.{api}.Insert", REFERENCES[api]
    record = decode(reference.fields, body, record=api, function=function)
    try:
        require_text(record, *reference.required, what=api, function=function)
        for name in reference.required if reference.checked else ():
            check_new_name(name, record[name], api, function=function)
        if api == "processingeras" and record["processing_version"] <= 0:
            raise errors.left_out(api, "processing_version", function=function)
    except DbsError as error:
        raise _refused(api, error) from error
    if api == "datatiers":
        record["create_by"] = ""  # a tier is always the caller's
    insert(db, api, record, caller)


def _refused(api: str, cause: DbsError) -> DbsError:
    """A refused value in the layers that the API wraps it in."""
    if api == "datatiers":
        text = "unable to insert data tier record"
        innermost = DbsError(Code.VALIDATION, cause.message, function="dbs.CheckPattern")
        invalid = DbsError(Code.VALIDATION, cause.message, function="dbs.tiers.Insert", reason=innermost.text())
        inner = invalid.wrapped(Code.INSERT, text, function="dbs.insertRecord")
        return inner.wrapped(Code.INSERT_DATA_TIER, text, function="dbs.tiers.InsertDataTiers")
    if api == "outputconfigs":
        text, function = "unable to insert output config record", "dbs.outputconfigs.InsertOutputConfigs"
        inner = cause.wrapped(Code.INSERT_OUTPUT_CONFIG, text, function=function)
        return inner.wrapped(Code.INSERT_OUTPUT_CONFIG, text, function=function)
    return cause


def update_acquisition_era(db: sqlite3.Connection, params: dict[str, str], caller: Caller) -> None:
    """PUT /acquisitioneras?acquisition_era_name=..&end_date=.. sets the end date.

    Raises:
        DbsError: 118 a parameter is missing or no number; 405 there is no such era.
    """
    function = "dbs.acquisitioneras.UpdateAcquisitionEras"
    name, end_date = params.get("acquisition_era_name", ""), params.get("end_date", "")
    if not name or not end_date.isdigit():
        raise bad_parameter("invalid acquisition_era_name or end_date parameter", function=function)
    message = f"unable to find acquisition_era_id for {name}"
    era_id = require_id(db, "acquisition_era", name, message, code=Code.GET_ACQUISITION_ERA_ID, function=function)
    db.execute(
        "UPDATE acquisition_eras SET end_date = ?, create_by = ? WHERE acquisition_era_id = ?",
        (int(end_date), caller.create_by, era_id),
    )
