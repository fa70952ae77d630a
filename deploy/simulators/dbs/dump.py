"""GET /blockdump: a block in the form ``bulkblocks`` takes it."""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import sqlite3
from typing import Any

from deploy.simulators.dbs.errors import Code, DbsError
from deploy.simulators.storage import Storage


def blockdump(storage: Storage, block_name: str | None) -> dict[str, Any]:
    """The block's record with its dataset, files, lumis, configs and parents; empty parts for an unknown block, as DBS does it.

    Raises:
        DbsError: 118, no block name.
    """
    if not block_name:
        raise DbsError(Code.PARAMETERS, "no list is allowed for provided key: block_name", function="dbs.blockdump.BlockDump")
    block = storage.row("SELECT * FROM blocks WHERE block_name = ?", (block_name,))
    dataset = storage.row(
        "SELECT d.*, p.primary_ds_name, p.creation_date AS p_creation_date, p.create_by AS p_create_by, pt.primary_ds_type,"
        " t.data_tier_name, at.dataset_access_type, pg.physics_group_name,"
        " ae.acquisition_era_name, ae.start_date, ae.end_date, ae.creation_date AS ae_creation_date,"
        " ae.create_by AS ae_create_by, ae.description AS ae_description, pe.processing_version,"
        " pe.creation_date AS pe_creation_date, pe.create_by AS pe_create_by,"
        " pe.description AS pe_description FROM datasets d JOIN primary_datasets p USING (primary_ds_id)"
        " JOIN primary_ds_types pt USING (primary_ds_type_id) JOIN data_tiers t USING (data_tier_id)"
        " JOIN dataset_access_types at USING (dataset_access_type_id) JOIN physics_groups pg USING (physics_group_id)"
        " JOIN acquisition_eras ae USING (acquisition_era_id) JOIN processing_eras pe USING (processing_era_id)"
        " WHERE d.dataset = ?",
        (block_name.partition("#")[0],),
    )
    block_id = block["block_id"] if block is not None else None
    dataset_id = dataset["dataset_id"] if dataset is not None else None
    parents = [
        row["dataset"]
        for row in storage.rows(
            "SELECT p.dataset FROM dataset_parents dp JOIN datasets p ON p.dataset_id = dp.parent_dataset_id"
            " WHERE dp.this_dataset_id = ?",
            (dataset_id,),
        )
    ]
    return {
        "dataset_conf_list": _records(
            storage,
            f"SELECT {_CONFIG} FROM output_configs c JOIN dataset_configs USING (output_mod_config_id) WHERE dataset_id = ?",
            dataset_id,
        ),
        "file_conf_list": _records(
            storage,
            f"SELECT {_CONFIG}, f.logical_file_name AS lfn FROM output_configs c JOIN file_configs USING (output_mod_config_id)"
            " JOIN files f USING (file_id) WHERE f.block_id = ?",
            block_id,
        ),
        "files": _files(storage, block_id),
        "processing_era": _pick(
            dataset,
            processing_version="processing_version",
            creation_date="pe_creation_date",
            create_by="pe_create_by",
            description="pe_description",
        ),
        "primds": _pick(
            dataset,
            primary_ds_id="primary_ds_id",
            primary_ds_name="primary_ds_name",
            primary_ds_type="primary_ds_type",
            creation_date="p_creation_date",
            create_by="p_create_by",
        ),
        "dataset": _pick(dataset, **{name: name for name in _DATASET}),
        "acquisition_era": _pick(
            dataset,
            acquisition_era_name="acquisition_era_name",
            start_date="start_date",
            end_date="end_date",
            creation_date="ae_creation_date",
            create_by="ae_create_by",
            description="ae_description",
        ),
        "block": _pick(block, **{name: name for name in _BLOCK}),
        "file_parent_list": _records(
            storage,
            "SELECT c.logical_file_name AS this_logical_file_name, p.logical_file_name AS parent_logical_file_name,"
            " p.file_id AS parent_file_id FROM file_parents fp"
            " JOIN files c ON c.file_id = fp.this_file_id JOIN files p ON p.file_id = fp.parent_file_id WHERE c.block_id = ?",
            block_id,
        ),
        "block_parent_list": _records(
            storage,
            "SELECT b.block_name AS this_block_name, p.block_name AS parent_block_name FROM block_parents bp"
            " JOIN blocks b ON b.block_id = bp.this_block_id JOIN blocks p ON p.block_id = bp.parent_block_id"
            " WHERE b.block_id = ?",
            block_id,
        ),
        "dataset_parent_list": parents,
        "ds_parent_list": [{"parent_dataset": name} for name in parents],
    }


_CONFIG = (
    "c.release_version, c.pset_hash, c.pset_name, c.app_name, c.output_module_label, c.global_tag, c.create_by, c.creation_date"
)
_DATASET = (
    *(
        "dataset_id",
        "create_by",
        "creation_date",
        "physics_group_name",
        "dataset_access_type",
        "data_tier_name",
        "last_modified_by",
    ),
    *("processed_ds_name", "xtcrosssection", "last_modification_date", "dataset", "prep_id"),
)
_BLOCK = (
    *("block_id", "dataset_id", "create_by", "creation_date", "open_for_writing", "block_name", "file_count", "origin_site_name"),
    *("block_size", "last_modified_by", "last_modification_date"),
)


def _pick(row: sqlite3.Row | None, **columns: str) -> dict[str, Any]:
    return {} if row is None else {key: row[column] for key, column in columns.items()}


def _records(storage: Storage, sql: str, key: int | None) -> list[dict[str, Any]]:
    return [dict(row) for row in storage.rows(sql, (key,))]


def _files(storage: Storage, block_id: int | None) -> list[dict[str, Any]]:
    lumis: dict[int, list[dict[str, Any]]] = {}
    sql = "SELECT l.* FROM file_lumis l JOIN files f USING (file_id) WHERE f.block_id = ?"
    for row in storage.rows(sql, (block_id,)):
        lumi = {"run_num": row["run_num"], "lumi_section_num": row["lumi_section_num"]}
        if row["event_count"] is not None:
            lumi["event_count"] = row["event_count"]
        lumis.setdefault(row["file_id"], []).append(lumi)
    columns = (
        "f.file_id, f.check_sum, f.adler32, f.file_size, f.event_count, ft.file_type, f.last_modified_by,"
        " f.last_modification_date, f.logical_file_name, f.md5, f.auto_cross_section, f.is_file_valid"
    )
    found = _records(
        storage, f"SELECT {columns} FROM files f JOIN file_data_types ft USING (file_type_id) WHERE f.block_id = ?", block_id
    )
    return [{**record, "file_lumi_list": lumis.get(record.pop("file_id"), [])} for record in found]
