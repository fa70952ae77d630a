"""Writes of files: POST and PUT of ``/files``, and the row-level helpers that ``bulkblocks`` shares.

Kept as measured: ``block_name`` stands in each file; each file is a transaction of its own, so the files before a refused one
stay; an LFN that exists, in whatever block, is skipped with 200; a closed block takes files; a parent is ``file_parent_lfn`` and
makes its block and dataset parents too; a configuration is found by its label alone; a lumi given twice is stored once. PUT with
a list of LFNs, or without any, changes every file there is.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from typing import Any

from deploy.simulators.dbs import errors
from deploy.simulators.dbs.context import (
    Caller,
    Record,
    failing_as,
    find_id,
    find_or_insert,
    insert_row,
    link,
    require_id,
    require_text,
)
from deploy.simulators.dbs.datasets import AUTHOR_FIELDS
from deploy.simulators.dbs.errors import Code, DbsError, bad_parameter
from deploy.simulators.dbs.names import check_new_name
from deploy.simulators.dbs.payloads import Fields, decode, decode_list
from deploy.simulators.dbs.reference import OUTPUT_CONFIG_FIELDS, config_by_label
from deploy.simulators.storage import Storage

FILE_FIELDS: Fields = {
    **dict.fromkeys(("logical_file_name", "file_type", "check_sum", "adler32", "md5"), str),
    **dict.fromkeys(("is_file_valid", "file_size", "event_count"), int),
    "auto_cross_section": float,
    **AUTHOR_FIELDS,
    "file_lumi_list": list,
}
POSTED_FILE_FIELDS: Fields = {
    **FILE_FIELDS,
    **dict.fromkeys(("dataset", "block_name"), str),
    **dict.fromkeys(("file_parent_list", "file_output_config", "file_output_config_list"), list),
}
LUMI_FIELDS: Fields = {"run_num": int, "lumi_section_num": int, "event_count": int}
PARENT_FIELDS: Fields = {"file_parent_lfn": str}

_FUNCTION = "dbs.files.InsertFiles"


def post_files(storage: Storage, body: Any, caller: Caller) -> None:
    """POST /files: ``{"files": [..]}`` or a bare list.

    Raises:
        DbsError: 122 undecodable; 400 a file's block does not exist or is not named in the file; 410 its dataset; 401 a parent;
            413 an output config; 310 the file's own values. Files before the refused one are stored.
    """
    values = body.get("files") if isinstance(body, dict) else body
    records = decode_list(
        POSTED_FILE_FIELDS, values, record="FileRecord", function=_FUNCTION, message="unable to decode file record"
    )
    for value, record in zip(values or [], records, strict=True):
        if "is_file_valid" not in value:
            record["is_file_valid"] = 1
        with storage.writing() as db:
            _post_file(db, record, caller)


def _post_file(db: sqlite3.Connection, record: Record, caller: Caller) -> None:
    if find_id(db, "file", record["logical_file_name"]) is not None:
        return
    block, dataset, message = record["block_name"], record["dataset"], "unable to insert file record"
    block_id = require_id(db, "block", block, f"unable to find block_id for {block}", code=Code.GET_BLOCK_ID, function=_FUNCTION)
    unknown = f"unable to find dataset_id for {dataset}"
    dataset_id = require_id(db, "dataset", dataset, unknown, code=Code.GET_DATASET_ID, function=_FUNCTION)
    if not record["file_type"]:
        cause = errors.left_out("file data type", "file_type", function="dbs.filedatatypes.Insert")
        raise cause.wrapped(Code.INSERT_FILE_TYPE, "unable to insert file data types record", function=_FUNCTION)
    try:
        check_file(record)
    except DbsError as error:
        raise error.wrapped(Code.INSERT_FILE, message, function=_FUNCTION) from error
    configs = decode_list(OUTPUT_CONFIG_FIELDS, record["file_output_config"], record="OutputConfigRecord", function=_FUNCTION)
    config_ids = [config_by_label(db, config["output_module_label"], function=_FUNCTION) for config in configs]
    with failing_as(Code.INSERT_FILE, message, function=_FUNCTION):
        file_id = insert_file(db, record, dataset_id, block_id, caller)
    for parent in decode_list(PARENT_FIELDS, record["file_parent_list"], record="FileParentRecord", function=_FUNCTION):
        lfn = parent["file_parent_lfn"]
        insert_parent(db, file_id, lfn, f"unable to get file id for {lfn}", code=Code.GET_FILE_ID, function=_FUNCTION)
    for config_id in config_ids:
        link(db, "file_configs", file_id, config_id)
    update_block_counts(db, block_id)


def check_file(record: Record) -> None:
    """The values DBS asks of every file.

    Raises:
        DbsError: 113, a checksum is missing, the size is not above 0, or the name is not in the lexicon.
    """
    function = "dbs.files.Insert"
    require_text(record, "logical_file_name", "check_sum", "adler32", what="file", function=function)
    if record["file_size"] <= 0:
        raise errors.left_out("file", "file_size", function=function)
    check_new_name("logical_file_name", record["logical_file_name"], "file", function=function)


def insert_file(db: sqlite3.Connection, record: Record, dataset_id: int, block_id: int, caller: Caller) -> int:
    """The row of a new file and its lumis; returns its id.

    Raises:
        sqlite3.IntegrityError: the LFN exists (in another block).
    """
    own = {name: record[name] for name in FILE_FIELDS if name not in ("file_type", "file_lumi_list")}
    own["create_by"] = own["create_by"] or own["last_modified_by"]
    type_id = find_or_insert(db, "file_type", record["file_type"])
    ids = {"dataset_id": dataset_id, "block_id": block_id, "file_type_id": type_id}
    file_id = insert_row(db, "files", {**caller.signed(own), **ids})
    lumis = decode_list(LUMI_FIELDS, record["file_lumi_list"], record="FileLumi", function="dbs.filelumis.Insert")
    # a count of 0 is not distinguished from none, so it reads back as null
    rows = [(file_id, lumi["run_num"], lumi["lumi_section_num"], lumi["event_count"] or None) for lumi in lumis]
    db.executemany("INSERT OR IGNORE INTO file_lumis VALUES (?, ?, ?, ?)", rows)
    return file_id


def insert_parent(db: sqlite3.Connection, file_id: int, parent_lfn: str, message: str, *, code: Code, function: str) -> None:
    """A file's parent, which must be in DBS; the parent's block and dataset become parents of the file's.

    Raises:
        DbsError: ``code`` and ``message``, it is not there.
    """
    parent_id = require_id(db, "file", parent_lfn, message, code=code, function=function)
    link(db, "file_parents", file_id, parent_id)
    pair = "FROM files c, files p WHERE c.file_id = ? AND p.file_id = ?"
    for table, column in (("block_parents", "block_id"), ("dataset_parents", "dataset_id")):
        db.execute(f"INSERT OR IGNORE INTO {table} SELECT c.{column}, p.{column} {pair}", (file_id, parent_id))


def update_block_counts(db: sqlite3.Connection, block_id: int) -> None:
    """Counts of the block's valid files, as POST /files does it (and sequential ``bulkblocks`` does not)."""
    files = "FROM files WHERE files.block_id = blocks.block_id AND is_file_valid = 1"
    db.execute(
        f"UPDATE blocks SET file_count = (SELECT count(*) {files}), block_size = (SELECT coalesce(sum(file_size), 0) {files})"
        " WHERE block_id = ?",
        (block_id,),
    )


def put_files(db: sqlite3.Connection, params: dict[str, Any], caller: Caller) -> None:
    """PUT /files with a JSON body ``{logical_file_name | dataset, is_file_valid}``. Unknown names answer 200.

    As measured, a list of LFNs, or no name at all, chooses **every file in DBS**; and any number is a validity.

    Raises:
        DbsError: 118, the validity is no number; 503 the database does not take it.
    """
    function = "dbs.files.UpdateFiles"
    valid = params.get("is_file_valid")
    if isinstance(valid, bool) or not str(valid).lstrip("-").isdigit():
        raise bad_parameter("invalid is_file_valid parameter", function=function)
    lfn, dataset = params.get("logical_file_name"), params.get("dataset")
    where, values = "1", []
    if isinstance(lfn, str) and lfn:
        where, values = "logical_file_name = ?", [lfn]
    elif isinstance(dataset, str) and dataset:
        where, values = "dataset_id = (SELECT dataset_id FROM datasets WHERE dataset = ?)", [dataset]
    with failing_as(Code.UPDATE_FILE, "unable to update file record", function=function):
        db.execute(
            f"UPDATE files SET is_file_valid = ?, last_modification_date = ?, last_modified_by = ? WHERE {where}",
            (int(str(valid)), caller.at, caller.create_by, *values),
        )


def post_file_parents(db: sqlite3.Connection, body: Any, _caller: Caller) -> None:
    """POST /fileparents ``{block_name, child_parent_id_list: [[child id, parent id], ..]}``: parentage added later (StepChain).

    Raises:
        DbsError: 122 undecodable; 118 a child lies in another block, or an id does not exist.
    """
    function = "dbs.fileparents.InsertFileParents"
    record = decode({"block_name": str, "child_parent_id_list": list}, body, record="FileParentBlockRecord", function=function)
    unknown = f"unable to find block_id for {record['block_name']}"
    block_id = require_id(db, "block", record["block_name"], unknown, code=Code.GET_BLOCK_ID, function=function)
    for pair in record["child_parent_id_list"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(number, int) for number in pair)):
            raise DbsError(Code.UNMARSHAL, f"pair {pair}", function=function, reason="json: cannot unmarshal into [2]int64")
        child = db.execute("SELECT block_id FROM files WHERE file_id = ?", (pair[0],)).fetchone()
        parent = db.execute("SELECT 1 FROM files WHERE file_id = ?", (pair[1],)).fetchone()
        if child is None or child[0] != block_id or parent is None:
            raise bad_parameter(f"pair {pair} does not belong to block {record['block_name']}", function=function)
        link(db, "file_parents", *pair)
