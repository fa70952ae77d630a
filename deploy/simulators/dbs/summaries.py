"""The remaining GET queries of DBS: summaries, output configs, runs, reference data; and the table of all queries."""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

from collections.abc import Callable
from typing import Any

from deploy.simulators.dbs import reads
from deploy.simulators.dbs.errors import Code, DbsError
from deploy.simulators.dbs.params import Params, name_condition, run_condition, single
from deploy.simulators.dbs.reads import Query


def blocksummaries(params: Params) -> Query:
    """Size, files and events of a dataset or of blocks: one record of sums (zeros if unknown); per block with ``detail``.

    ``num_file`` and ``file_size`` come from the block rows, ``num_event`` from the files: after a sequential ``bulkblocks``
    they disagree.

    Raises:
        DbsError: 118, no name, several datasets, or a wildcard.
    """
    function = "dbs.blocksummaries.BlockSummaries"
    blocks, datasets = params.get("block_name", []), params.get("dataset", [])
    if not blocks and not datasets:
        raise DbsError(Code.PARAMETERS, "block_name or dataset is required for blocksummaries api", function=function)
    if len(datasets) > 1:
        raise DbsError(Code.PARAMETERS, "Unsupported list of dataset", function=function)
    if any("*" in name for name in blocks + datasets):
        raise DbsError(Code.PARAMETERS, "wild-card value is not allowed", function=function)
    column, names = ("d.dataset", datasets) if datasets else ("b.block_name", blocks)
    where, values = name_condition(column, names)
    events = "(SELECT coalesce(sum(f.event_count), 0) FROM files f WHERE f.block_id = b.block_id)"
    source = f"blocks b JOIN datasets d USING (dataset_id) WHERE {where}"
    if "detail" in params:
        columns = f"b.block_name, b.open_for_writing, b.block_size AS file_size, b.file_count AS num_file, {events} AS num_event"
        return Query(f"SELECT {columns} FROM {source} ORDER BY b.block_id", tuple(values))
    columns = (
        "coalesce(sum(b.block_size), 0) AS file_size, coalesce(sum(b.file_count), 0) AS num_file,"
        f" coalesce(sum({events}), 0) AS num_event"
    )
    return Query(f"SELECT {columns} FROM {source}", tuple(values))


def filesummaries(params: Params) -> Query:
    """Counts over the files of a dataset or block.

    Raises:
        DbsError: 118, neither a dataset nor a block.
    """
    if not params.get("dataset") and not params.get("block_name"):
        raise DbsError(
            Code.PARAMETERS, "block_name or dataset is required for filesummaries api", function="dbs.filesummaries.FileSummaries"
        )
    column, names = ("d.dataset", params["dataset"]) if params.get("dataset") else ("b.block_name", params["block_name"])
    where, values = name_condition(column, names)
    if single(params, "validFileOnly") == "1":
        where += " AND f.is_file_valid = 1 AND at.dataset_access_type IN ('VALID', 'PRODUCTION')"
    if params.get("run_num"):
        text, binds = run_condition("l.run_num", params["run_num"])
        where += f" AND f.file_id IN (SELECT l.file_id FROM file_lumis l WHERE {text})"
        values = values + binds
    source = (
        "files f JOIN datasets d ON d.dataset_id = f.dataset_id JOIN blocks b ON b.block_id = f.block_id"
        f" JOIN dataset_access_types at ON at.dataset_access_type_id = d.dataset_access_type_id WHERE {where}"
    )
    lumis = (
        "(SELECT count(*) FROM (SELECT DISTINCT l.run_num, l.lumi_section_num FROM file_lumis l"
        f" WHERE l.file_id IN (SELECT f.file_id FROM {source})))"
    )
    columns = (
        "count(*) AS num_file, coalesce(sum(f.event_count), 0) AS num_event, coalesce(sum(f.file_size), 0) AS file_size,"
        f" count(DISTINCT f.block_id) AS num_block, {lumis} AS num_lumi, max(f.last_modification_date) AS max_ldate"
    )
    return Query(f"SELECT {columns} FROM {source}", tuple(values + values))


def outputconfigs(params: Params) -> Query:
    """Output configs, of a dataset or a file, or by their values."""
    columns = (
        "c.app_name, c.release_version, c.pset_hash, c.pset_name, c.output_module_label, c.global_tag, c.creation_date,"
        " c.create_by"
    )
    tables, filters = (
        "output_configs c",
        {name: f"c.{name}" for name in ("app_name", "release_version", "pset_hash", "output_module_label", "global_tag")},
    )
    if params.get("dataset"):
        tables += " JOIN dataset_configs dc USING (output_mod_config_id) JOIN datasets d USING (dataset_id)"
        filters["dataset"] = "d.dataset"
    if params.get("logical_file_name") or params.get("block_id"):
        tables += " JOIN file_configs fc USING (output_mod_config_id) JOIN files f ON f.file_id = fc.file_id"
        filters |= {"logical_file_name": "f.logical_file_name", "block_id": "f.block_id"}
    return _query(columns, tables, params, filters, distinct=True)


def runs(params: Params) -> Query:
    """Run numbers of a dataset, block or file.

    Raises:
        DbsError: 118, none of them is named.
    """
    filters = {"dataset": "d.dataset", "block_name": "b.block_name", "logical_file_name": "f.logical_file_name"}
    if not any(params.get(name) for name in filters):
        raise DbsError(
            Code.PARAMETERS, "dataset, block_name or logical_file_name is required for runs api", function="dbs.runs.Runs"
        )
    conditions = [name_condition(column, params[name]) for name, column in filters.items() if params.get(name)]
    if params.get("run_num"):
        conditions.append(run_condition("l.run_num", params["run_num"]))
    source = (
        "file_lumis l JOIN files f USING (file_id) JOIN datasets d ON d.dataset_id = f.dataset_id"
        " JOIN blocks b ON b.block_id = f.block_id"
    )
    where = " AND ".join(text for text, _ in conditions)
    values = tuple(value for _, binds in conditions for value in binds)
    return Query(f"SELECT DISTINCT l.run_num FROM {source} WHERE {where} ORDER BY l.run_num", values)


def releaseversions(params: Params) -> Query:
    """CMSSW releases known to DBS."""
    filters = {"release_version": "c.release_version", "dataset": "d.dataset"}
    tables = "output_configs c"
    if params.get("dataset"):
        tables += " JOIN dataset_configs dc USING (output_mod_config_id) JOIN datasets d USING (dataset_id)"
    return _query("c.release_version", tables, params, filters, distinct=True)


def _query(columns: str, tables: str, params: Params, filters: dict[str, str], *, distinct: bool = False) -> Query:
    conditions = [name_condition(column, params[name]) for name, column in filters.items() if params.get(name)]
    where = " AND ".join(text for text, _ in conditions)
    values: tuple[Any, ...] = tuple(value for _, binds in conditions for value in binds)
    return Query(
        f"SELECT {'DISTINCT ' if distinct else ''}{columns} FROM {tables}" + (f" WHERE {where}" if where else ""), values
    )


def _table(columns: str, tables: str, **filters: str) -> Callable[[Params], Query]:
    return lambda params: _query(columns, tables, params, filters)


QUERIES: dict[str, Callable[[Params], Query]] = {
    "datasets": reads.datasets,
    "blocks": reads.blocks,
    "files": reads.files,
    "filelumis": reads.filelumis,
    "fileparents": reads.fileparents,
    "filechildren": reads.filechildren,
    "blockparents": reads.blockparents,
    "blockchildren": reads.blockchildren,
    "blockorigin": reads.blockorigin,
    "datasetparents": reads.datasetparents,
    "datasetchildren": reads.datasetchildren,
    "blocksummaries": blocksummaries,
    "filesummaries": filesummaries,
    "outputconfigs": outputconfigs,
    "runs": runs,
    "releaseversions": releaseversions,
    "datatiers": _table("data_tier_id, data_tier_name, creation_date, create_by", "data_tiers", data_tier_name="data_tier_name"),
    "physicsgroups": _table("physics_group_name", "physics_groups", physics_group_name="physics_group_name"),
    "datasetaccesstypes": _table("dataset_access_type", "dataset_access_types", dataset_access_type="dataset_access_type"),
    "primarydatasets": _table(
        "primary_ds_id, primary_ds_name, primary_ds_type, creation_date, create_by",
        "primary_datasets JOIN primary_ds_types USING (primary_ds_type_id)",
        primary_ds_name="primary_ds_name",
        primary_ds_type="primary_ds_type",
    ),
    "primarydstypes": _table(
        "primary_ds_type_id, primary_ds_type AS data_type", "primary_ds_types", primary_ds_type="primary_ds_type"
    ),
    "acquisitioneras": _table(
        "acquisition_era_name, start_date, end_date, creation_date, create_by, description",
        "acquisition_eras",
        acquisition_era_name="acquisition_era_name",
    ),
    "processingeras": _table(
        "processing_version, creation_date, create_by, description", "processing_eras", processing_version="processing_version"
    ),
}
