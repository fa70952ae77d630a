"""The remaining GET queries of DBS: summaries, output configs, runs, reference data; and the table of all queries."""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

from collections.abc import Callable

from deploy.simulators.dbs import reads
from deploy.simulators.dbs.errors import bad_parameter
from deploy.simulators.dbs.params import Params
from deploy.simulators.dbs.reads import (
    CONFIG_FILTERS,
    FILE_FILTERS,
    FILE_TABLES,
    Query,
    joined,
    named,
    require_one,
    select,
    table,
)


def blocksummaries(params: Params) -> Query:
    """Size, files and events of a dataset or of blocks: one record of sums (zeros if unknown); per block with ``detail``.

    ``num_file`` and ``file_size`` come from the block rows, ``num_event`` from the files: after a sequential ``bulkblocks``
    they disagree.

    Raises:
        DbsError: 118, no name or a wildcard.
    """
    function, filters = "dbs.blocksummaries.BlockSummaries", {"block_name": "b.block_name", "dataset": "d.dataset"}
    require_one(params, filters, "block_name or dataset is required for blocksummaries api", function=function)
    conditions = named(params, filters)
    if any("*" in value for _, values in conditions for value in values):
        raise bad_parameter("wild-card value is not allowed", function=function)
    events = "(SELECT coalesce(sum(f.event_count), 0) FROM files f WHERE f.block_id = b.block_id)"
    tables = "blocks b JOIN datasets d USING (dataset_id)"
    if "detail" in params:
        columns = f"b.block_name, b.open_for_writing, b.block_size AS file_size, b.file_count AS num_file, {events} AS num_event"
        return select(columns, tables, conditions, tail=" ORDER BY b.block_id")
    columns = (
        "coalesce(sum(b.block_size), 0) AS file_size, coalesce(sum(b.file_count), 0) AS num_file,"
        f" coalesce(sum({events}), 0) AS num_event"
    )
    return select(columns, tables, conditions)


def filesummaries(params: Params) -> Query:
    """Counts over the files of a dataset or block.

    Raises:
        DbsError: 118, neither a dataset nor a block.
    """
    message = "block_name or dataset is required for filesummaries api"
    require_one(params, FILE_FILTERS, message, function="dbs.filesummaries.FileSummaries")
    conditions = named(params, FILE_FILTERS)
    where, values = joined(conditions)
    files = f"SELECT f.file_id FROM {FILE_TABLES} WHERE {where}"
    lumis = f"SELECT DISTINCT l.run_num, l.lumi_section_num FROM file_lumis l WHERE l.file_id IN ({files})"
    columns = (
        "count(*) AS num_file, coalesce(sum(f.event_count), 0) AS num_event, coalesce(sum(f.file_size), 0) AS file_size,"
        f" count(DISTINCT f.block_id) AS num_block, (SELECT count(*) FROM ({lumis})) AS num_lumi,"
        " max(f.last_modification_date) AS max_ldate"
    )
    query = select(columns, FILE_TABLES, conditions)
    return Query(query.sql, (*values, *query.values))


def outputconfigs(params: Params) -> Query:
    """Output configs, of a dataset or a file, or by their values."""
    columns = ", ".join((*CONFIG_FILTERS.values(), "c.pset_name, c.creation_date, c.create_by"))
    tables, filters = "output_configs c", {**CONFIG_FILTERS, "dataset": "d.dataset", "logical_file_name": "f.logical_file_name"}
    if params.get("dataset"):
        tables += " JOIN dataset_configs dc USING (output_mod_config_id) JOIN datasets d USING (dataset_id)"
    if params.get("logical_file_name"):
        tables += " JOIN file_configs fc USING (output_mod_config_id) JOIN files f ON f.file_id = fc.file_id"
    return select(columns, tables, named(params, filters), distinct=True)


def _by_name(columns: str, tables: str, *names: str) -> Callable[[Params], Query]:
    """A table whose columns are called as the parameters."""
    return table(columns, tables, {name: name for name in names})


QUERIES: dict[str, Callable[[Params], Query]] = {
    "datasets": reads.datasets,
    "blocks": reads.blocks,
    "files": reads.files,
    "filelumis": reads.filelumis,
    **reads.RELATIONS,
    "blockorigin": table(
        "b.block_name, b.origin_site_name, d.dataset, b.open_for_writing, b.file_count, b.block_size, b.creation_date,"
        " b.create_by, b.last_modification_date, b.last_modified_by",
        "blocks b JOIN datasets d USING (dataset_id)",
        {"dataset": "d.dataset", "block_name": "b.block_name", "origin_site_name": "b.origin_site_name"},
        needed="origin_site_name, dataset or block_name is required",
        function="dbs.blockorigin.BlockOrigin",
    ),
    "blocksummaries": blocksummaries,
    "filesummaries": filesummaries,
    "outputconfigs": outputconfigs,
    "datatiers": _by_name("data_tier_id, data_tier_name, creation_date, create_by", "data_tiers", "data_tier_name"),
    "physicsgroups": _by_name("physics_group_name", "physics_groups", "physics_group_name"),
    "datasetaccesstypes": _by_name("dataset_access_type", "dataset_access_types", "dataset_access_type"),
    "primarydatasets": _by_name(
        "primary_ds_id, primary_ds_name, primary_ds_type, creation_date, create_by",
        "primary_datasets JOIN primary_ds_types USING (primary_ds_type_id)",
        *("primary_ds_name", "primary_ds_type"),
    ),
    "acquisitioneras": _by_name(
        "acquisition_era_name, start_date, end_date, creation_date, create_by, description",
        "acquisition_eras",
        "acquisition_era_name",
    ),
    "processingeras": _by_name(
        "processing_version, creation_date, create_by, description", "processing_eras", "processing_version"
    ),
}
