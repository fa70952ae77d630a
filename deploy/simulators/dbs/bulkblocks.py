"""POST /bulkblocks: a block with everything it needs, in one transaction.

Two modes, as measured. ``concurrent`` (what production runs): an existing block is refused with code 200 and nothing is
added; a file that is in another block, or a value that is refused, is reported as a ``concurrency error``. ``sequential``: an
existing block answers 200, the files that are new are *added* and the block's counts stay as they were; a file that is in another
block is passed over. In both, counts are stored as they are sent, missing reference data is made, and a known dataset keeps its
access type and ``prep_id``. A file's configuration is looked up by all but its release: of two that differ in it alone, files get
the first, while the dataset's own is right.
"""

import sqlite3
import uuid
from dataclasses import dataclass
from typing import Any

from deploy.simulators.dbs import errors
from deploy.simulators.dbs.context import Caller, Record, failing_as, find_id, find_or_insert, link, require_id, require_text
from deploy.simulators.dbs.datasets import BLOCK_FIELDS, DATASET_FIELDS, check_dataset, insert_block, insert_dataset
from deploy.simulators.dbs.errors import Code, DbsError
from deploy.simulators.dbs.files import FILE_FIELDS, check_file, insert_file, insert_parent
from deploy.simulators.dbs.payloads import Fields, decode, decode_list
from deploy.simulators.dbs.reference import OUTPUT_CONFIG_FIELDS, REFERENCES, config_of_file, insert

_SEQUENTIAL = "dbs.bulkblocks.InsertBulkBlocks"
_CONCURRENT = "dbs.bulkblocks.InsertBulkBlocksConcurrently"
_BODY_FIELDS: Fields = {
    **dict.fromkeys(("processing_era", "primds", "dataset", "acquisition_era", "block"), dict),
    **dict.fromkeys(("dataset_conf_list", "file_conf_list", "files", "file_parent_list", "block_parent_list"), list),
    **dict.fromkeys(("dataset_parent_list", "ds_parent_list"), list),
}
_FILE_CONFIG_FIELDS: Fields = {**OUTPUT_CONFIG_FIELDS, "lfn": str}
_FILE_PARENT_FIELDS: Fields = {"logical_file_name": str, "this_logical_file_name": str, "parent_logical_file_name": str}
_BLOCK_PARENT_FIELDS: Fields = {"parent_block": str, "parent_block_name": str, "this_block_name": str}


@dataclass(frozen=True, slots=True)
class _Mode:
    """How the server's two implementations word the same refusals."""

    concurrent: bool

    @property
    def function(self) -> str:
        return _CONCURRENT if self.concurrent else _SEQUENTIAL

    def primary_type(self, name: str) -> DbsError:
        cause = _inserting(errors.left_out("primary dataset type", "primary_ds_type", function="dbs.primarydstypes.Insert"))
        if self.concurrent:
            message = f"{_request()} unable to find primary_ds_type_id for primary ds type='{name}'"
            return cause.wrapped(Code.PRIMARY_TYPE_MISSING, message, function="dbs.bulkblocks.getPrimaryDatasetTypeID")
        return cause.wrapped(Code.GET_PRIMARY_TYPE_ID, f"unable to find primary_ds_type_id for {name}", function=_SEQUENTIAL)

    def dataset(self, record: Record, error: DbsError) -> DbsError:
        if not self.concurrent:
            return error.wrapped(
                Code.INSERT_DATASET, f"unable to insert dataset record {record['dataset']}", function=_SEQUENTIAL
            )
        author = record["create_by"]
        printed = f"{{1 {record['dataset']} 1 1 1 1 2 1 1 1 0 {record['prep_id']} 1 {author} 1 {record['last_modified_by']}}}"
        message = f"{_request()} unable to insert dataset='{printed}'"
        return _inserting(error).wrapped(Code.DATASET_MISSING, message, function="dbs.bulkblocks.getDatasetID")

    def block(self, name: str, cause: DbsError) -> DbsError:
        if self.concurrent:
            cause = _inserting(cause)
            message = f"{_request()} unable to find block_id for {name}, error {cause.text()}"
            return cause.wrapped(Code.GET_BLOCK_ID, message, function=_CONCURRENT)
        return cause.wrapped(Code.INSERT_BLOCK, f"unable to insert block record {name}", function=_SEQUENTIAL)

    def file_type(self, name: str) -> DbsError:
        cause = _inserting(errors.left_out("file data type", "file_type", function="dbs.filedatatypes.Insert"))
        if self.concurrent:
            message = f"{_request()} unable to find file_type_id for {{2 {name}}}, error {cause.text()}"
            return cause.wrapped(Code.FILE_TYPE_MISSING, message, function=_CONCURRENT)
        return cause.wrapped(Code.GET_FILE_TYPE_ID, f"unable to find file_type_id for {name}", function=_SEQUENTIAL)

    def file(self, lfn: str, cause: DbsError) -> DbsError:
        if self.concurrent:  # whatever the cause was, it is lost here
            function, reason = "dbs.bulkblocks.insertFilesViaChunks", "concurrency error"
            cause = DbsError(Code.INSERT_FILE, "unable to insert file record", function=function, reason=reason)
            message = f"{_request()} unable to insert files, error {cause.text()}"
            return cause.wrapped(Code.INSERT_FILE, message, function=_CONCURRENT)
        return cause.wrapped(Code.INSERT_FILE, f"unable to insert File record {lfn}", function=_SEQUENTIAL)

    def parent_dataset(self, name: str) -> DbsError:
        if self.concurrent:
            cause = DbsError(Code.QUERY, "", function="dbs.GetID", reason=errors.NO_ROWS)
            message = f"{_request()} unable to find dataset_id for {name}, error {cause.text()}"
            return cause.wrapped(Code.DATASET_PARENT_MISSING, message, function=_CONCURRENT)
        message = f"unable to find dataset_id for {name}"
        return errors.no_row(Code.GET_PARENT_DATASET_ID, message, function=_SEQUENTIAL)


def _request() -> str:
    """Concurrent mode puts a hash of the call into its messages."""
    return f"request {uuid.uuid4().hex}{uuid.uuid4().hex}"


def _inserting(cause: DbsError) -> DbsError:
    return cause.wrapped(Code.INSERT, "", function="dbs.GetRecID")


def post_bulkblock(db: sqlite3.Connection, body: Any, caller: Caller, *, concurrent: bool) -> None:
    """Store one block.

    Raises:
        DbsError: 122 undecodable; 200 the block exists (concurrent mode); 202 a file parent, 203 or 416 a dataset parent is
            missing; 305 or 400 the block's own values, or the database's trouble; 310 a file's. Nothing is stored then.
    """
    mode = _Mode(concurrent)
    parts = decode(_BODY_FIELDS, body, record="BulkBlocks", function=mode.function)
    block = decode(BLOCK_FIELDS, parts["block"], record="Block", function=mode.function)
    block_id = find_id(db, "block", block["block_name"])
    if block_id is not None and concurrent:
        message = f"Block {block['block_name']} already exists"
        raise DbsError(Code.BLOCK_EXISTS, message, function="dbs.bulkblocks.checkBlockExist", reason="nil")
    dataset_id = _dataset(db, parts, caller, mode)
    if block_id is None:
        block_id = _block(db, block, dataset_id, caller, mode)
    file_ids = _files(db, parts["files"], dataset_id, block_id, caller, mode)
    for config in decode_list(_FILE_CONFIG_FIELDS, parts["file_conf_list"], record="FileConfig", function=mode.function):
        config_id = config_of_file(db, config)
        if config["lfn"] in file_ids and config_id is not None:
            link(db, "file_configs", file_ids[config["lfn"]], config_id)
    _parents(db, parts, file_ids, block_id, dataset_id, mode)


def _dataset(db: sqlite3.Connection, parts: Record, caller: Caller, mode: _Mode) -> int:
    """The dataset's id, made with its reference data when new."""
    function = mode.function
    primary = decode(REFERENCES["primarydatasets"].fields, parts["primds"], record="PrimaryDataset", function=function)
    if not primary["primary_ds_type"]:
        raise mode.primary_type(primary["primary_ds_type"])
    configs = decode_list(OUTPUT_CONFIG_FIELDS, parts["dataset_conf_list"], record="DatasetConfig", function=function)
    config_ids = [insert(db, "outputconfigs", config, caller) for config in configs]
    era = decode(REFERENCES["acquisitioneras"].fields, parts["acquisition_era"], record="AcquisitionEra", function=function)
    processing = decode(REFERENCES["processingeras"].fields, parts["processing_era"], record="ProcessingEra", function=function)
    dataset = decode(DATASET_FIELDS, parts["dataset"], record="Dataset", function=function)
    tier = {"data_tier_name": dataset["data_tier_name"], "creation_date": 0, "create_by": ""}
    parents = {
        "primary_ds_id": insert(db, "primarydatasets", primary, caller),
        "data_tier_id": insert(db, "datatiers", tier, caller),
        "dataset_access_type_id": find_or_insert(db, "access_type", dataset["dataset_access_type"]),
        "acquisition_era_id": insert(db, "acquisitioneras", era, caller),
        "processing_era_id": insert(db, "processingeras", processing, caller),
        "physics_group_id": find_or_insert(db, "physics_group", dataset["physics_group_name"]),
    }
    dataset_id = find_id(db, "dataset", dataset["dataset"])
    if dataset_id is None:
        try:
            check_dataset(dataset)
        except DbsError as error:
            raise mode.dataset(dataset, error) from error
        dataset_id = insert_dataset(db, dataset, parents, caller)
    known = {row[0] for row in db.execute("SELECT output_mod_config_id FROM dataset_configs WHERE dataset_id = ?", (dataset_id,))}
    for config_id in config_ids:
        if config_id not in known:  # what is there is not written again: a locked database is met at the block only
            link(db, "dataset_configs", dataset_id, config_id)
    return dataset_id


def _block(db: sqlite3.Connection, block: Record, dataset_id: int, caller: Caller, mode: _Mode) -> int:
    block = {**block, "last_modified_by": block["last_modified_by"] or block["create_by"]}
    try:
        require_text(block, "block_name", "origin_site_name", what="blocks", function="dbs.blocks.Insert")
        with failing_as(Code.INSERT, "unable to insert block record", function="dbs.blocks.Insert"):
            return insert_block(db, block, dataset_id, caller)
    except DbsError as error:
        raise mode.block(block["block_name"], error) from error


def _files(
    db: sqlite3.Connection, values: list[Any], dataset_id: int, block_id: int, caller: Caller, mode: _Mode
) -> dict[str, int]:
    """The files by LFN. One that is there already, in whatever block (sequential mode), is kept as it is."""
    file_ids: dict[str, int] = {}
    for value, record in zip(values, decode_list(FILE_FIELDS, values, record="File", function=mode.function), strict=True):
        if "is_file_valid" not in value:
            record["is_file_valid"] = 1
        lfn = record["logical_file_name"]
        if not record["file_type"]:
            raise mode.file_type(record["file_type"])
        try:
            check_file(record)
        except DbsError as error:
            raise mode.file(lfn, error) from error
        known = find_id(db, "file", lfn)
        if known is not None and mode.concurrent:
            raise mode.file(lfn, DbsError(Code.INSERT_FILE, "", function=mode.function))
        file_ids[lfn] = insert_file(db, record, dataset_id, block_id, caller) if known is None else known
    return file_ids


def _parents(
    db: sqlite3.Connection, parts: Record, file_ids: dict[str, int], block_id: int, dataset_id: int, mode: _Mode
) -> None:
    """Parentage of files (with that of their blocks and datasets), of the block and of the dataset."""
    for parent in decode_list(_FILE_PARENT_FIELDS, parts["file_parent_list"], record="FileParentRecord", function=mode.function):
        lfn = parent["logical_file_name"] or parent["this_logical_file_name"]
        if lfn not in file_ids:
            reason = "unable to locate LFN file id"
            raise DbsError(Code.INSERT_BULKBLOCK, f"no file id found for '{lfn}'", function=mode.function, reason=reason)
        name = parent["parent_logical_file_name"]
        message = f"unable to find parent lfn {name}"
        insert_parent(db, file_ids[lfn], name, message, code=Code.FILE_PARENT_MISSING, function=_CONCURRENT)
    for record in decode_list(_BLOCK_PARENT_FIELDS, parts["block_parent_list"], record="BlockParent", function=mode.function):
        name = record["parent_block_name"] or record["parent_block"]
        message = f"unable to find block_id for {name}"
        parent_id = require_id(db, "block", name, message, code=Code.GET_BLOCK_ID, function=mode.function)
        link(db, "block_parents", block_id, parent_id)
    names = [name for name in parts["dataset_parent_list"] if isinstance(name, str)]
    names += [
        record["parent_dataset"]
        for record in parts["ds_parent_list"]
        if isinstance(record, dict) and record.get("parent_dataset")
    ]
    for name in names:
        found = find_id(db, "dataset", name)
        if found is None:
            raise mode.parent_dataset(name)
        link(db, "dataset_parents", dataset_id, found)
