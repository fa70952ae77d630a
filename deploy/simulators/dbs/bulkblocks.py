"""POST /bulkblocks: a closed block with everything it needs, in one transaction.

Two modes, as measured. ``concurrent`` (what production runs): an existing block is refused with code 200 and nothing is
added. ``sequential``: it answers 200, *adds* the files that are new and leaves ``file_count`` as it was. No name is
checked against the lexicon in either.
"""

import sqlite3
from typing import Any

from deploy.simulators.dbs import errors
from deploy.simulators.dbs.context import Caller, find_id, find_or_insert, require_id, require_text
from deploy.simulators.dbs.datasets import BLOCK_FIELDS, DATASET_FIELDS, insert_block, insert_dataset, link_config
from deploy.simulators.dbs.errors import DbsError
from deploy.simulators.dbs.files import FILE_FIELDS, check_file, insert_file, insert_parent, link_file_config
from deploy.simulators.dbs.payloads import Fields, decode, decode_list
from deploy.simulators.dbs.reference import (
    FIELDS,
    OUTPUT_CONFIG_FIELDS,
    insert_acquisition_era,
    insert_data_tier,
    insert_output_config,
    insert_primary_dataset,
    insert_processing_era,
)

_FUNCTION = "dbs.bulkblocks.InsertBulkBlocks"
_BODY_FIELDS: Fields = {
    "dataset_conf_list": list,
    "file_conf_list": list,
    "files": list,
    "processing_era": dict,
    "primds": dict,
    "dataset": dict,
    "acquisition_era": dict,
    "block": dict,
    "file_parent_list": list,
    "block_parent_list": list,
    "dataset_parent_list": list,
    "ds_parent_list": list,
}
_FILE_CONFIG_FIELDS: Fields = {**OUTPUT_CONFIG_FIELDS, "lfn": str}
_FILE_PARENT_FIELDS: Fields = {"logical_file_name": str, "this_logical_file_name": str, "parent_logical_file_name": str}
_BLOCK_PARENT_FIELDS: Fields = {"parent_block": str, "parent_block_name": str, "this_block_name": str}


def post_bulkblock(db: sqlite3.Connection, body: Any, caller: Caller, *, concurrent: bool) -> None:
    """Store one block.

    Raises:
        DbsError: 122 undecodable; 200 the block exists (concurrent mode); 202 a file parent, 203 a dataset parent is missing;
            308 the block's own values; 310 a file's values or its LFN lies in another block; 311 lumis. Nothing is stored then.
    """
    parts = decode(_BODY_FIELDS, body, record="BulkBlocks", function=_FUNCTION)
    block = decode(BLOCK_FIELDS, parts["block"], record="Block", function=_FUNCTION)
    try:
        require_text(block, "block_name", "origin_site_name", function=_FUNCTION)
    except DbsError as error:
        raise error.wrapped(errors.INSERT_BULKBLOCK, function=_FUNCTION) from error
    block_id = find_id(db, "block", block["block_name"])
    if block_id is not None and concurrent:
        message = f"block {block['block_name']} already exists"
        raise DbsError(errors.BLOCK_EXISTS, message, function=_FUNCTION, reason=f"{message} in DBS")
    dataset_id = _dataset(db, parts, caller)
    if block_id is None:
        block_id = insert_block(db, block, dataset_id, caller)
    file_ids = _files(db, parts["files"], dataset_id, block_id, caller)
    for config in decode_list(_FILE_CONFIG_FIELDS, parts["file_conf_list"], record="FileConfig", function=_FUNCTION):
        if config["lfn"] in file_ids:
            link_file_config(db, file_ids[config["lfn"]], config, function=_FUNCTION)
    _parents(db, parts, file_ids, block_id, dataset_id)


def _dataset(db: sqlite3.Connection, parts: dict[str, Any], caller: Caller) -> int:
    """The dataset's id, made with its reference data when new."""
    configs = decode_list(OUTPUT_CONFIG_FIELDS, parts["dataset_conf_list"], record="DatasetConfig", function=_FUNCTION)
    config_ids = [insert_output_config(db, config, caller) for config in configs]
    primary = decode(FIELDS["primarydatasets"], parts["primds"], record="PrimaryDataset", function=_FUNCTION)
    era = decode(FIELDS["acquisitioneras"], parts["acquisition_era"], record="AcquisitionEra", function=_FUNCTION)
    processing = decode(FIELDS["processingeras"], parts["processing_era"], record="ProcessingEra", function=_FUNCTION)
    dataset = decode(DATASET_FIELDS, parts["dataset"], record="Dataset", function=_FUNCTION)
    try:
        require_text(primary, "primary_ds_name", "primary_ds_type", function=_FUNCTION)
        require_text(era, "acquisition_era_name", function=_FUNCTION)
        require_text(
            dataset,
            "dataset",
            "processed_ds_name",
            "data_tier_name",
            "physics_group_name",
            "dataset_access_type",
            function=_FUNCTION,
        )
    except DbsError as error:
        raise error.wrapped(errors.INSERT_BULKBLOCK, function=_FUNCTION) from error
    parents = {
        "primary_ds_id": insert_primary_dataset(db, primary, caller),
        "data_tier_id": insert_data_tier(db, {"data_tier_name": dataset["data_tier_name"]}, caller),
        "dataset_access_type_id": find_or_insert(db, "access_type", dataset["dataset_access_type"]),
        "acquisition_era_id": insert_acquisition_era(db, era, caller),
        "processing_era_id": insert_processing_era(db, processing, caller),
        "physics_group_id": find_or_insert(db, "physics_group", dataset["physics_group_name"]),
    }
    dataset_id = find_id(db, "dataset", dataset["dataset"])
    if dataset_id is None:
        dataset_id = insert_dataset(db, dataset, parents, caller)
    for config_id in config_ids:
        link_config(db, dataset_id, config_id)
    return dataset_id


def _files(db: sqlite3.Connection, values: list[Any], dataset_id: int, block_id: int, caller: Caller) -> dict[str, int]:
    """The files by LFN. A file of this very block that is there already (sequential mode) is kept as it is."""
    file_ids: dict[str, int] = {}
    for value, record in zip(values, decode_list(FILE_FIELDS, values, record="File", function=_FUNCTION), strict=True):
        if "is_file_valid" not in value:
            record["is_file_valid"] = 1
        lfn = record["logical_file_name"]
        row = db.execute("SELECT file_id FROM files WHERE logical_file_name = ? AND block_id = ?", (lfn, block_id)).fetchone()
        if row is not None:
            file_ids[lfn] = int(row[0])
            continue
        try:
            check_file(record, function=_FUNCTION)
        except DbsError as error:
            raise error.wrapped(errors.INSERT_FILE, function=_FUNCTION) from error
        file_ids[lfn] = insert_file(db, record, dataset_id, block_id, caller)
    return file_ids


def _parents(db: sqlite3.Connection, parts: dict[str, Any], file_ids: dict[str, int], block_id: int, dataset_id: int) -> None:
    """Parentage of files, of the block and of the dataset."""
    for parent in decode_list(_FILE_PARENT_FIELDS, parts["file_parent_list"], record="FileParentRecord", function=_FUNCTION):
        lfn = parent["logical_file_name"] or parent["this_logical_file_name"]
        if lfn not in file_ids:
            raise DbsError(
                errors.INSERT_BULKBLOCK,
                f"no file id found for '{lfn}'",
                function=_FUNCTION,
                reason="unable to locate LFN file id",
            )
        insert_parent(db, file_ids[lfn], parent["parent_logical_file_name"], function=_FUNCTION)
    for record in decode_list(_BLOCK_PARENT_FIELDS, parts["block_parent_list"], record="BlockParent", function=_FUNCTION):
        name = record["parent_block_name"] or record["parent_block"]
        parent_id = require_id(db, "block", name, code=errors.GET_BLOCK_ID, function=_FUNCTION)
        db.execute("INSERT OR IGNORE INTO block_parents VALUES (?, ?)", (block_id, parent_id))
    names = [name for name in parts["dataset_parent_list"] if isinstance(name, str)]
    names += [
        record["parent_dataset"]
        for record in parts["ds_parent_list"]
        if isinstance(record, dict) and record.get("parent_dataset")
    ]
    for name in names:
        parent_id = require_id(db, "dataset", name, code=errors.DATASET_PARENT_MISSING, function=_FUNCTION)
        db.execute("INSERT OR IGNORE INTO dataset_parents VALUES (?, ?)", (dataset_id, parent_id))
