"""Writes of files: POST and PUT of ``/files``, and the row-level helpers that ``bulkblocks`` shares.

Kept as measured and read: ``block_name`` stands in each file; each file is a transaction of its own, so the files before
a refused one stay; an LFN that exists, in whatever block, is skipped with 200; a closed block takes files.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from collections.abc import Iterable
from typing import Any

from deploy.simulators.dbs import errors
from deploy.simulators.dbs.context import Caller, find_id, find_or_insert, require_id, require_text
from deploy.simulators.dbs.errors import PARAMETERS, DbsError
from deploy.simulators.dbs.names import check_new_name
from deploy.simulators.dbs.payloads import Fields, decode, decode_list
from deploy.simulators.dbs.reference import OUTPUT_CONFIG_FIELDS, find_output_config
from deploy.simulators.storage import Storage

FILE_FIELDS: Fields = {
    "logical_file_name": str,
    "is_file_valid": int,
    "file_type": str,
    "check_sum": str,
    "file_size": int,
    "event_count": int,
    "adler32": str,
    "md5": str,
    "auto_cross_section": float,
    "creation_date": int,
    "create_by": str,
    "last_modification_date": int,
    "last_modified_by": str,
    "file_lumi_list": list,
}
POSTED_FILE_FIELDS: Fields = {
    **FILE_FIELDS,
    "dataset": str,
    "block_name": str,
    "file_parent_list": list,
    "file_output_config": list,
    "file_output_config_list": list,
}
LUMI_FIELDS: Fields = {"run_num": int, "lumi_section_num": int, "event_count": int}
PARENT_FIELDS: Fields = {"logical_file_name": str, "parent_logical_file_name": str, "file_parent_lfn": str}
DEFAULT_FILE_TYPE = "EDM"

_FUNCTION = "dbs.files.InsertFiles"


def post_files(storage: Storage, body: Any, caller: Caller) -> None:
    """POST /files: ``{"files": [..]}`` or a bare list.

    Raises:
        DbsError: 122 undecodable; 400 a file's block does not exist or is not named in the file; 410 its dataset; 202 a parent;
            413 an output config; 310 the file's own values; 311 its lumis. Files before the refused one are stored.
    """
    values = body.get("files") if isinstance(body, dict) else body
    for value, record in zip(
        values or [], decode_list(POSTED_FILE_FIELDS, values, record="FileRecord", function=_FUNCTION), strict=True
    ):
        if "is_file_valid" not in value:
            record["is_file_valid"] = 1
        with storage.writing() as db:
            _post_file(db, record, caller)


def _post_file(db: sqlite3.Connection, record: dict[str, Any], caller: Caller) -> None:
    if find_id(db, "file", record["logical_file_name"]) is not None:
        return
    block_id = require_id(db, "block", record["block_name"], code=errors.GET_BLOCK_ID, function=_FUNCTION)
    dataset_id = require_id(db, "dataset", record["dataset"], code=errors.GET_DATASET_ID, function=_FUNCTION)
    try:
        check_file(record, function=_FUNCTION)
        check_new_name("logical_file_name", record["logical_file_name"], function=_FUNCTION)
    except DbsError as error:
        raise error.wrapped(errors.INSERT_FILE, function=_FUNCTION) from error
    file_id = insert_file(db, record, dataset_id, block_id, caller)
    for parent in decode_list(PARENT_FIELDS, record["file_parent_list"], record="FileParentRecord", function=_FUNCTION):
        insert_parent(db, file_id, parent["parent_logical_file_name"] or parent["file_parent_lfn"], function=_FUNCTION)
    # the Go field is called file_output_config, the documentation says file_output_config_list: both are taken
    configs = record["file_output_config"] or record["file_output_config_list"]
    for config in decode_list(OUTPUT_CONFIG_FIELDS, configs, record="OutputConfigRecord", function=_FUNCTION):
        link_file_config(db, file_id, config, function=_FUNCTION)
    update_block_counts(db, block_id)


def check_file(record: dict[str, Any], *, function: str) -> None:
    """The values DBS asks of every file.

    Raises:
        DbsError: 118, a checksum or name is missing, the size is not above 0, or the validity is neither 0 nor 1.
    """
    require_text(record, "logical_file_name", "check_sum", "adler32", function=function)
    if record["file_size"] <= 0:
        message = f"key=file_size type=int64 value={record['file_size']}, constrain gt 0"
        raise DbsError(PARAMETERS, message, function=function, reason="validation error")
    if record["is_file_valid"] not in (0, 1):
        raise DbsError(PARAMETERS, "wrong is_file_valid value", function=function)


def insert_file(db: sqlite3.Connection, record: dict[str, Any], dataset_id: int, block_id: int, caller: Caller) -> int:
    """The row of a new file and its lumis; returns its id.

    Raises:
        DbsError: 310 the LFN exists (in another block); 311 the same lumi twice.
    """
    columns: dict[str, Any] = {
        "logical_file_name": record["logical_file_name"],
        "is_file_valid": record["is_file_valid"],
        "dataset_id": dataset_id,
        "block_id": block_id,
        "file_type_id": find_or_insert(db, "file_type", record["file_type"] or DEFAULT_FILE_TYPE),
        "check_sum": record["check_sum"],
        "event_count": record["event_count"],
        "file_size": record["file_size"],
        "adler32": record["adler32"],
        "md5": record["md5"],
        "auto_cross_section": record["auto_cross_section"],
        "creation_date": caller.date(record["creation_date"]),
        "create_by": caller.author(record["create_by"] or record["last_modified_by"]),
        "last_modification_date": caller.at,
        "last_modified_by": caller.author(record["last_modified_by"]),
    }
    sql = f"INSERT INTO files ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})"
    try:
        file_id = int(db.execute(sql, tuple(columns.values())).lastrowid or 0)
    except sqlite3.IntegrityError as error:
        message = f"unable to insert file {record['logical_file_name']}"
        raise DbsError(errors.INSERT_FILE, message, function="dbs.files.Insert", reason=str(error)) from error
    lumis = decode_list(LUMI_FIELDS, record["file_lumi_list"], record="FileLumi", function="dbs.filelumis.Insert")
    given = [isinstance(value, dict) and value.get("event_count") is not None for value in record["file_lumi_list"]]
    insert_lumis(db, file_id, zip(lumis, given, strict=True), lfn=record["logical_file_name"])
    return file_id


def insert_lumis(db: sqlite3.Connection, file_id: int, lumis: Iterable[tuple[dict[str, Any], bool]], *, lfn: str) -> None:
    """The lumis of a file; the flag says whether events per lumi were given (else NULL).

    Raises:
        DbsError: 311, the same run and lumi twice in one file.
    """
    rows = [(file_id, lumi["run_num"], lumi["lumi_section_num"], lumi["event_count"] if given else None) for lumi, given in lumis]
    try:
        db.executemany("INSERT INTO file_lumis VALUES (?, ?, ?, ?)", rows)
    except sqlite3.IntegrityError as error:
        raise DbsError(
            errors.INSERT_FILE_LUMI, f"file lumis of {lfn}", function="dbs.filelumis.Insert", reason=str(error)
        ) from error


def insert_parent(db: sqlite3.Connection, file_id: int, parent_lfn: str, *, function: str) -> None:
    """A file's parent, which must be in DBS.

    Raises:
        DbsError: 202, it is not.
    """
    parent_id = require_id(db, "file", parent_lfn, code=errors.FILE_PARENT_MISSING, function=function)
    db.execute("INSERT OR IGNORE INTO file_parents VALUES (?, ?)", (file_id, parent_id))


def link_file_config(db: sqlite3.Connection, file_id: int, config: dict[str, Any], *, function: str) -> None:
    """The output config a file was made with.

    Raises:
        DbsError: 413, DBS has no such config.
    """
    config_id = find_output_config(db, config)
    if config_id is None:
        raise DbsError(errors.GET_OUTPUT_CONFIG_ID, f"no output config {config}", function=function, reason=errors.NO_ROWS)
    db.execute("INSERT OR IGNORE INTO file_configs VALUES (?, ?)", (file_id, config_id))


def update_block_counts(db: sqlite3.Connection, block_id: int) -> None:
    """file_count and block_size from the block's files, as POST /files does (and sequential ``bulkblocks`` does not)."""
    db.execute(
        "UPDATE blocks SET file_count = (SELECT count(*) FROM files WHERE files.block_id = blocks.block_id),"
        " block_size = (SELECT coalesce(sum(file_size), 0) FROM files WHERE files.block_id = blocks.block_id) WHERE block_id = ?",
        (block_id,),
    )


def put_files(db: sqlite3.Connection, params: dict[str, Any], caller: Caller) -> None:
    """PUT /files with a JSON body ``{logical_file_name | dataset, is_file_valid}``; one LFN per call. Unknown names answer 200.

    Raises:
        DbsError: 118, no or several LFNs, no dataset either, or a validity other than 0 and 1.
    """
    function = "dbs.files.UpdateFiles"
    valid = params.get("is_file_valid")
    if str(valid) not in ("0", "1") or isinstance(valid, bool):
        raise DbsError(PARAMETERS, "invalid is_file_valid parameter", function=function)
    lfn, dataset = params.get("logical_file_name"), params.get("dataset")
    if isinstance(lfn, str) and lfn:
        where, value = "logical_file_name = ?", lfn
    elif lfn is None and isinstance(dataset, str) and dataset:
        where, value = "dataset_id = (SELECT dataset_id FROM datasets WHERE dataset = ?)", dataset
    else:
        raise DbsError(PARAMETERS, "one logical_file_name or one dataset is required", function=function)
    db.execute(
        f"UPDATE files SET is_file_valid = ?, last_modification_date = ?, last_modified_by = ? WHERE {where}",
        (int(str(valid)), caller.at, caller.create_by, value),
    )


def post_file_parents(db: sqlite3.Connection, body: Any) -> None:
    """POST /fileparents ``{block_name, child_parent_id_list: [[child id, parent id], ..]}``: parentage added later (StepChain).

    Raises:
        DbsError: 122 undecodable; 118 a child lies in another block, or an id does not exist.
    """
    function = "dbs.fileparents.InsertFileParents"
    record = decode({"block_name": str, "child_parent_id_list": list}, body, record="FileParentBlockRecord", function=function)
    block_id = require_id(db, "block", record["block_name"], code=errors.GET_BLOCK_ID, function=function)
    for pair in record["child_parent_id_list"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(number, int) for number in pair)):
            raise DbsError(errors.UNMARSHAL, f"pair {pair}", function=function, reason="json: cannot unmarshal into [2]int64")
        child = db.execute("SELECT block_id FROM files WHERE file_id = ?", (pair[0],)).fetchone()
        parent = db.execute("SELECT 1 FROM files WHERE file_id = ?", (pair[1],)).fetchone()
        if child is None or child[0] != block_id or parent is None:
            raise DbsError(PARAMETERS, f"pair {pair} does not belong to block {record['block_name']}", function=function)
        db.execute("INSERT OR IGNORE INTO file_parents VALUES (?, ?)", tuple(pair))
