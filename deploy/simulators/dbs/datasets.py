"""Writes of datasets and blocks: POST and PUT of ``/datasets`` and ``/blocks``.

Kept as measured: ``open_for_writing`` is only a number (files can be added to a closed block) and a block's name is not looked
at; PUT of an unknown block or dataset answers 200; PUT of a block reads the query string only and PUT of a dataset the body
only; POST of a dataset drops its ``prep_id`` and takes the first configuration that has the output module's label.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from typing import Any

from deploy.simulators.dbs.context import Caller, failing_as, find_id, require_id, require_text
from deploy.simulators.dbs.errors import Code, DbsError
from deploy.simulators.dbs.names import check_new_name
from deploy.simulators.dbs.payloads import Fields, decode, decode_list
from deploy.simulators.dbs.reference import OUTPUT_CONFIG_FIELDS, config_by_label

DATASET_FIELDS: Fields = {
    "dataset": str,
    "primary_ds_name": str,
    "processed_ds_name": str,
    "data_tier_name": str,
    "acquisition_era_name": str,
    "dataset_access_type": str,
    "processing_version": int,
    "physics_group_name": str,
    "xtcrosssection": float,
    "prep_id": str,
    "creation_date": int,
    "create_by": str,
    "last_modification_date": int,
    "last_modified_by": str,
    "output_configs": list,
}
BLOCK_FIELDS: Fields = {
    "block_name": str,
    "open_for_writing": int,
    "origin_site_name": str,
    "block_size": int,
    "file_count": int,
    "creation_date": int,
    "create_by": str,
    "last_modification_date": int,
    "last_modified_by": str,
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
        column: require_id(db, kind, record[key], message.format(record[key]), code=code, function=function)
        for column, (kind, key, code, message) in _PARENTS.items()
    }
    config_ids = [config_by_label(db, config["output_module_label"], function=function) for config in configs]
    try:
        check_dataset(record)
    except DbsError as error:
        message = f"unable to insert dataset record {_as_go(record)}"
        raise error.wrapped(Code.INSERT_DATASET, message, function=function) from error
    dataset_id = insert_dataset(db, {**record, "prep_id": ""}, parents, caller)
    for config_id in config_ids:
        link_config(db, dataset_id, config_id)


# column: kind, key of the body, code and message when there is no such row (with what Go's own formatting makes of two of them)
_PARENTS = {
    "primary_ds_id": (
        "primary_dataset",
        "primary_ds_name",
        Code.GET_PRIMARY_DATASET_ID,
        "unable to find primary_ds_id for%!(EXTRA string={})",
    ),
    "data_tier_id": ("data_tier", "data_tier_name", Code.GET_DATA_TIER_ID, "unable to find data_tier id for {}"),
    "dataset_access_type_id": (
        "access_type",
        "dataset_access_type",
        Code.GET_ACCESS_TYPE_ID,
        "unable to find dataset_access_type_id for {}",
    ),
    "acquisition_era_id": (
        "acquisition_era",
        "acquisition_era_name",
        Code.GET_ACQUISITION_ERA_ID,
        "unable to find acquisition_era_id for {}",
    ),
    "processing_era_id": (
        "processing_era",
        "processing_version",
        Code.GET_PROCESSING_ERA_ID,
        "unable to find processing_era_id for %!s(int64={})",
    ),
    "physics_group_id": (
        "physics_group",
        "physics_group_name",
        Code.GET_PHYSICS_GROUP_ID,
        "unable to find physics_group_id for {}",
    ),
}


def check_dataset(record: dict[str, Any]) -> None:
    """The names DBS asks of every dataset.

    Raises:
        DbsError: 113, one is missing or not in the lexicon.
    """
    require_text(record, "dataset", "processed_ds_name", what="dataset", function="dbs.datasets.Insert")
    for name in ("dataset", "processed_ds_name"):
        check_new_name(name, record[name], "dataset", function="dbs.datasets.Insert")


def _as_go(record: dict[str, Any]) -> str:
    """The record as the server prints it, ids and dates as ones."""
    return f"{{1 {record['dataset']} 1 1 1 1 2 1 1 1 0  1 {record['create_by']} 1 {record['last_modified_by']}}}"


def insert_dataset(db: sqlite3.Connection, record: dict[str, Any], parents: dict[str, int], caller: Caller) -> int:
    """The row of a new dataset; returns its id."""
    columns: dict[str, Any] = {
        "dataset": record["dataset"],
        "is_dataset_valid": int(record["dataset_access_type"] in _VALID_ACCESS_TYPES),
        "processed_ds_name": record["processed_ds_name"],
        "xtcrosssection": record["xtcrosssection"],
        "prep_id": record["prep_id"],
        "creation_date": caller.date(record["creation_date"]),
        "create_by": caller.author(record["create_by"]),
        "last_modification_date": caller.at,
        "last_modified_by": caller.author(record["last_modified_by"]),
        **parents,
    }
    sql = f"INSERT INTO datasets ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"
    return int(db.execute(sql, tuple(columns.values())).lastrowid or 0)


def link_config(db: sqlite3.Connection, dataset_id: int, config_id: int) -> None:
    """The dataset was made with this output config."""
    link = (dataset_id, config_id)
    if db.execute("SELECT 1 FROM dataset_configs WHERE dataset_id = ? AND output_mod_config_id = ?", link).fetchone() is None:
        db.execute("INSERT INTO dataset_configs VALUES (?, ?)", link)


def put_dataset(db: sqlite3.Connection, params: dict[str, Any], caller: Caller) -> None:
    """PUT /datasets with a JSON body ``{dataset, dataset_access_type}``. An unknown dataset is not reported.

    Raises:
        DbsError: 118 a field is missing; 408 no such access type.
    """
    function = "dbs.datasets.UpdateDatasets"
    dataset, access_type = params.get("dataset"), params.get("dataset_access_type")
    if not isinstance(dataset, str) or not dataset:
        raise DbsError(Code.PARAMETERS, "invalid dataset parameter", function=function)
    if not isinstance(access_type, str) or not access_type:
        raise DbsError(Code.PARAMETERS, "invalid dataset_access_type parameter", function=function)
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


def insert_block(db: sqlite3.Connection, record: dict[str, Any], dataset_id: int, caller: Caller) -> int:
    """The row of a new block; returns its id."""
    columns: dict[str, Any] = {
        "block_name": record["block_name"],
        "dataset_id": dataset_id,
        "open_for_writing": record["open_for_writing"],
        "origin_site_name": record["origin_site_name"],
        "block_size": record["block_size"],
        "file_count": record["file_count"],
        "creation_date": caller.date(record["creation_date"]),
        "create_by": caller.author(record["create_by"]),
        "last_modification_date": caller.at,
        "last_modified_by": caller.author(record["last_modified_by"]),
    }
    sql = f"INSERT INTO blocks ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"
    return int(db.execute(sql, tuple(columns.values())).lastrowid or 0)


def put_block(db: sqlite3.Connection, params: dict[str, str], caller: Caller) -> None:
    """PUT /blocks?block_name=..&open_for_writing=0|1 (or &origin_site_name=..). An unknown block is not reported.

    Raises:
        DbsError: 118, no block name in the query string (a JSON body is not read), or a value out of range.
    """
    function = "dbs.blocks.UpdateBlocks"
    if not params.get("block_name"):
        raise DbsError(Code.PARAMETERS, "invalid block_name parameter", function=function)
    value: str | int
    if "origin_site_name" in params:
        if not params["origin_site_name"]:
            raise DbsError(Code.PARAMETERS, "invalid origin_site_name parameter", function=function)
        column, value = "origin_site_name", params["origin_site_name"]
    else:
        column, value = "open_for_writing", _go_atoi(params.get("open_for_writing", "0"))
        _check_open_flag(value, function=function)
    with failing_as(Code.UPDATE_BLOCK, "unable to update block record", function=function):
        db.execute(
            f"UPDATE blocks SET {column} = ?, last_modification_date = ?, last_modified_by = ? WHERE block_name = ?",
            (value, caller.at, caller.create_by, params["block_name"]),
        )


def _go_atoi(text: str) -> int:
    """dbs2go only logs a number it cannot read and goes on with 0: ``open_for_writing=no`` closes the block."""
    return int(text) if text.lstrip("+-").isdigit() else 0


def _check_open_flag(value: int | str, *, function: str) -> None:
    if value not in (0, 1):
        raise DbsError(Code.PARAMETERS, "invalid open_for_writing parameter", function=function)
