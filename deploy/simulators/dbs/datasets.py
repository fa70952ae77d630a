"""Writes of datasets and blocks: POST and PUT of ``/datasets`` and ``/blocks``.

Kept as measured: ``open_for_writing`` is only a number (files can be added to a closed block) and a block's name is not looked
at; PUT of an unknown block or dataset answers 200; PUT of a block reads the query string only and PUT of a dataset the body
only; POST of a dataset drops its ``prep_id`` and takes the first configuration that has the output module's label.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from typing import Any

from deploy.simulators.dbs.context import Caller, Record, failing_as, find_id, insert_row, link, require_id, require_text
from deploy.simulators.dbs.errors import Code, DbsError, bad_parameter
from deploy.simulators.dbs.names import check_new_name
from deploy.simulators.dbs.payloads import Fields, decode, decode_list
from deploy.simulators.dbs.reference import OUTPUT_CONFIG_FIELDS, config_by_label

AUTHOR_FIELDS: Fields = {"creation_date": int, "create_by": str, "last_modification_date": int, "last_modified_by": str}
DATASET_FIELDS: Fields = {
    **dict.fromkeys(("dataset", "primary_ds_name", "processed_ds_name", "data_tier_name", "acquisition_era_name"), str),
    **dict.fromkeys(("dataset_access_type", "physics_group_name", "prep_id"), str),
    "processing_version": int,
    "xtcrosssection": float,
    "output_configs": list,
    **AUTHOR_FIELDS,
}
BLOCK_FIELDS: Fields = {
    "block_name": str,
    "open_for_writing": int,
    "origin_site_name": str,
    "block_size": int,
    "file_count": int,
    **AUTHOR_FIELDS,
}
_VALID_ACCESS_TYPES = ("VALID", "PRODUCTION")


def post_dataset(db: sqlite3.Connection, body: Any, caller: Caller) -> None:
    """POST /datasets: every parent must exist; an existing dataset is left as it is.

    Raises:
        DbsError: 122 undecodable; 404..413 something it hangs on does not exist; 300 a field is missing or a name is refused.
    """
    function = "dbs.datasets.InsertDatasets"
    record = decode(DATASET_FIELDS, body, record="DatasetRecord", function=function, message="unable to decode dataset record")
    configs = decode_list(OUTPUT_CONFIG_FIELDS, record["output_configs"], record="OutputConfigRecord", function=function)
    if find_id(db, "dataset", record["dataset"]) is not None:
        return
    parents = {
        column: require_id(db, kind, record[key], f"unable to find {words}".format(record[key]), code=code, function=function)
        for column, (kind, key, code, words) in _PARENTS.items()
    }
    config_ids = [config_by_label(db, config["output_module_label"], function=function) for config in configs]
    try:
        check_dataset(record)
    except DbsError as error:
        message = f"unable to insert dataset record {_as_go(record)}"
        raise error.wrapped(Code.INSERT_DATASET, message, function=function) from error
    dataset_id = insert_dataset(db, {**record, "prep_id": ""}, parents, caller)
    for config_id in config_ids:
        link(db, "dataset_configs", dataset_id, config_id)


# column: kind, key of the body, code and message when there is no such row (with what Go's own formatting makes of two of them)
_PARENTS = {
    "primary_ds_id": ("primary_dataset", "primary_ds_name", Code.GET_PRIMARY_DATASET_ID, "primary_ds_id for%!(EXTRA string={})"),
    "data_tier_id": ("data_tier", "data_tier_name", Code.GET_DATA_TIER_ID, "data_tier id for {}"),
    "dataset_access_type_id": ("access_type", "dataset_access_type", Code.GET_ACCESS_TYPE_ID, "dataset_access_type_id for {}"),
    "acquisition_era_id": ("acquisition_era", "acquisition_era_name", Code.GET_ACQUISITION_ERA_ID, "acquisition_era_id for {}"),
    "processing_era_id": (
        "processing_era",
        "processing_version",
        Code.GET_PROCESSING_ERA_ID,
        "processing_era_id for %!s(int64={})",
    ),
    "physics_group_id": ("physics_group", "physics_group_name", Code.GET_PHYSICS_GROUP_ID, "physics_group_id for {}"),
}


def check_dataset(record: Record) -> None:
    """The names DBS asks of every dataset.

    Raises:
        DbsError: 113, one is missing or not in the lexicon.
    """
    require_text(record, "dataset", "processed_ds_name", what="dataset", function="dbs.datasets.Insert")
    for name in ("dataset", "processed_ds_name"):
        check_new_name(name, record[name], "dataset", function="dbs.datasets.Insert")


def _as_go(record: Record) -> str:
    """The record as the server prints it, ids and dates as ones."""
    return f"{{1 {record['dataset']} 1 1 1 1 2 1 1 1 0  1 {record['create_by']} 1 {record['last_modified_by']}}}"


def insert_dataset(db: sqlite3.Connection, record: Record, parents: dict[str, int], caller: Caller) -> int:
    """The row of a new dataset; returns its id."""
    own = {name: record[name] for name in ("dataset", "processed_ds_name", "xtcrosssection", "prep_id", *AUTHOR_FIELDS)}
    is_valid = int(record["dataset_access_type"] in _VALID_ACCESS_TYPES)
    return insert_row(db, "datasets", {**caller.signed(own), "is_dataset_valid": is_valid, **parents})


def put_dataset(db: sqlite3.Connection, params: dict[str, Any], caller: Caller) -> None:
    """PUT /datasets with a JSON body ``{dataset, dataset_access_type}``. An unknown dataset is not reported.

    Raises:
        DbsError: 118 a field is missing; 408 no such access type.
    """
    function = "dbs.datasets.UpdateDatasets"
    for name in ("dataset", "dataset_access_type"):
        if not isinstance(params.get(name), str) or not params[name]:
            raise bad_parameter(f"invalid {name} parameter", function=function)
    dataset, access_type = params["dataset"], params["dataset_access_type"]
    message = f"unable to find dataset_access_type_id for {access_type}"
    type_id = require_id(db, "access_type", access_type, message, code=Code.GET_ACCESS_TYPE_ID, function=function)
    with failing_as(Code.UPDATE_DATASET, "unable to update dataset record", function=function):
        db.execute(
            "UPDATE datasets SET dataset_access_type_id = ?, is_dataset_valid = ?, last_modification_date = ?,"
            " last_modified_by = ? WHERE dataset = ?",
            (type_id, int(access_type in _VALID_ACCESS_TYPES), caller.at, caller.create_by, dataset),
        )


def post_block(db: sqlite3.Connection, body: Any, caller: Caller) -> None:
    """POST /blocks; an existing block is left as it is (200).

    Raises:
        DbsError: 122 undecodable; 410 its dataset does not exist; 305 a field is missing.
    """
    function = "dbs.blocks.InsertBlocks"
    record = decode(BLOCK_FIELDS, body, record="BlockRecord", function=function, message="unable to decode block record")
    if "open_for_writing" not in body:
        record["open_for_writing"] = 1
    if find_id(db, "block", record["block_name"]) is not None:
        return
    name, unknown = record["block_name"].partition("#")[0], "unable to get dataset id for given block"
    dataset_id = require_id(db, "dataset", name, unknown, code=Code.GET_DATASET_ID, function=function)
    try:
        require_text(record, "block_name", "origin_site_name", what="blocks", function="dbs.blocks.Insert")
    except DbsError as error:
        raise error.wrapped(Code.INSERT_BLOCK, "unable to insert block record", function=function) from error
    with failing_as(Code.INSERT_BLOCK, "unable to insert block record", function=function):
        insert_block(db, record, dataset_id, caller)


def insert_block(db: sqlite3.Connection, record: Record, dataset_id: int, caller: Caller) -> int:
    """The row of a new block; returns its id."""
    return insert_row(db, "blocks", {**caller.signed(record), "dataset_id": dataset_id})


def put_block(db: sqlite3.Connection, params: dict[str, str], caller: Caller) -> None:
    """PUT /blocks?block_name=..&open_for_writing=0|1 (or &origin_site_name=..). An unknown block is not reported.

    Raises:
        DbsError: 118, no block name in the query string (a JSON body is not read), or a value out of range.
    """
    function = "dbs.blocks.UpdateBlocks"
    if not params.get("block_name"):
        raise bad_parameter("invalid block_name parameter", function=function)
    column = "origin_site_name" if "origin_site_name" in params else "open_for_writing"
    value: str | int = params.get(column, "0")
    if column == "open_for_writing":  # dbs2go only logs a number it cannot read and goes on with 0: ``no`` closes the block
        value = int(value) if str(value).lstrip("+-").isdigit() else 0
    if value not in (0, 1) if column == "open_for_writing" else not value:
        raise bad_parameter(f"invalid {column} parameter", function=function)
    with failing_as(Code.UPDATE_BLOCK, "unable to update block record", function=function):
        db.execute(
            f"UPDATE blocks SET {column} = ?, last_modification_date = ?, last_modified_by = ? WHERE block_name = ?",
            (value, caller.at, caller.create_by, params["block_name"]),
        )
