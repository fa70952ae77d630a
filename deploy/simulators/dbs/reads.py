"""GET queries of DBS over datasets, blocks and files, as SQL. Each turns parameters into one ``Query`` that the service streams.

Kept as measured: ``/datasets`` shows only VALID datasets unless asked otherwise; ``/filelumis`` gives one record per lumi;
``/files`` refuses ``run_num=1`` without lumis or file names.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from deploy.simulators.dbs.errors import Code, DbsError, bad_parameter
from deploy.simulators.dbs.params import (
    Condition,
    Params,
    date_conditions,
    is_set,
    lumi_condition,
    name_condition,
    run_condition,
    single,
)


@dataclass(frozen=True, slots=True)
class Query:
    """One SQL statement; its column names are the JSON keys."""

    sql: str
    values: tuple[Any, ...]


def select(columns: str, tables: str, conditions: list[Condition], *, distinct: bool = False, tail: str = "") -> Query:
    """The rows of ``tables`` that meet all conditions."""
    where, values = joined(conditions)
    sql = f"SELECT {'DISTINCT ' if distinct else ''}{columns} FROM {tables}" + (f" WHERE {where}" if where else "") + tail
    return Query(sql, tuple(values))


def joined(conditions: list[Condition]) -> Condition:
    """All conditions as one."""
    return " AND ".join(text for text, _ in conditions), [value for _, binds in conditions for value in binds]


def named(params: Params, columns: dict[str, str]) -> list[Condition]:
    """Conditions on those columns whose parameter is there."""
    return [name_condition(column, params[name]) for name, column in columns.items() if params.get(name)]


def require_one(params: Params, names: Iterable[str], message: str, *, function: str) -> None:
    """A query that must say what it is about.

    Raises:
        DbsError: 118, with ``message``: none of the parameters is there.
    """
    if not any(params.get(name) for name in names):
        raise bad_parameter(message, function=function)


_DATASET_DETAIL = (
    "d.dataset_id, d.dataset, d.prep_id, d.xtcrosssection, d.creation_date, d.create_by, d.last_modification_date,"
    " d.last_modified_by, p.primary_ds_name, pt.primary_ds_type, d.processed_ds_name, t.data_tier_name, at.dataset_access_type,"
    " ae.acquisition_era_name, pe.processing_version, pg.physics_group_name"
)
_DATASET_TABLES = (
    "datasets d JOIN primary_datasets p USING (primary_ds_id) JOIN primary_ds_types pt USING (primary_ds_type_id)"
    " JOIN data_tiers t USING (data_tier_id) JOIN dataset_access_types at USING (dataset_access_type_id)"
    " JOIN acquisition_eras ae USING (acquisition_era_id) JOIN processing_eras pe USING (processing_era_id)"
    " JOIN physics_groups pg USING (physics_group_id)"
)
_DATASET_FILTERS = {
    "dataset": "d.dataset",
    "primary_ds_name": "p.primary_ds_name",
    "data_tier_name": "t.data_tier_name",
    "acquisition_era_name": "ae.acquisition_era_name",
    "processing_version": "pe.processing_version",
    "prep_id": "d.prep_id",
}
CONFIG_FILTERS = {name: f"c.{name}" for name in ("app_name", "release_version", "pset_hash", "output_module_label", "global_tag")}
FILE_FILTERS = {"dataset": "d.dataset", "block_name": "b.block_name", "logical_file_name": "f.logical_file_name"}


def _by_files(column: str, params: Params) -> list[Condition]:
    """Datasets or blocks, by their id ``column``, that have files of these names, and files of these runs."""
    conditions = named(params, {"logical_file_name": "f.logical_file_name"})
    if params.get("run_num"):
        conditions.append(run_condition(params["run_num"]))
    source = f"SELECT f.{column.partition('.')[2]} FROM files f LEFT JOIN file_lumis l USING (file_id)"
    return [(f"{column} IN ({source} WHERE {text})", values) for text, values in conditions]


def datasets(params: Params) -> Query:
    """Datasets by name and attributes; ``detail=1`` for all columns, ``dataset_access_type=*`` for all types."""
    conditions = named(params, _DATASET_FILTERS) + date_conditions(params, "d") + _by_files("d.dataset_id", params)
    if single(params, "dataset_access_type") != "*":
        conditions.append(name_condition("at.dataset_access_type", params.get("dataset_access_type") or ["VALID"]))
    tables = _DATASET_TABLES
    if any(params.get(name) for name in CONFIG_FILTERS):
        tables += " JOIN dataset_configs dc USING (dataset_id) JOIN output_configs c USING (output_mod_config_id)"
        conditions += named(params, CONFIG_FILTERS)
    columns = _DATASET_DETAIL if is_set(params, "detail") else "d.dataset"
    return select(columns, tables, conditions, distinct=True, tail=" ORDER BY d.dataset_id")


_BLOCK_DETAIL = (
    "b.block_id, b.block_name, b.open_for_writing, b.block_size, b.file_count, b.dataset_id, d.dataset,"
    " b.origin_site_name, b.creation_date, b.create_by, b.last_modification_date, b.last_modified_by"
)


def blocks(params: Params) -> Query:
    """Blocks of a dataset, by name, site, file or run; ``detail=1`` for all columns.

    Raises:
        DbsError: 118, nothing says which blocks.
    """
    message = "Blocks API requires one of the following: [dataset block_name data_tier_name logical_file_name]"
    names = ("dataset", "block_name", "data_tier_name", "logical_file_name", "origin_site_name")
    require_one(params, names, message, function="dbs.blocks.Blocks")
    filters = {
        "dataset": "d.dataset",
        "block_name": "b.block_name",
        "data_tier_name": "t.data_tier_name",
        "origin_site_name": "b.origin_site_name",
    }
    return select(
        _BLOCK_DETAIL if is_set(params, "detail") else "b.block_name",
        "blocks b JOIN datasets d USING (dataset_id) JOIN data_tiers t USING (data_tier_id)",
        named(params, filters) + date_conditions(params, "b") + _by_files("b.block_id", params),
        tail=" ORDER BY b.block_id",
    )


_FILE_DETAIL = (
    "f.file_id, f.logical_file_name, f.is_file_valid, f.dataset_id, d.dataset, f.block_id, b.block_name, f.file_type_id,"
    " ft.file_type, f.check_sum, {events} AS event_count, f.file_size, f.adler32, f.md5, f.auto_cross_section,"
    " f.creation_date, f.create_by, f.last_modification_date, f.last_modified_by"
)
FILE_TABLES = (
    "files f JOIN file_data_types ft USING (file_type_id) JOIN datasets d ON d.dataset_id = f.dataset_id"
    " JOIN dataset_access_types at ON at.dataset_access_type_id = d.dataset_access_type_id"
    " JOIN blocks b ON b.block_id = f.block_id"
)


def _valid_only(params: Params) -> list[Condition]:
    wanted = "f.is_file_valid = 1 AND at.dataset_access_type IN ('VALID', 'PRODUCTION')"
    return [(wanted, [])] if single(params, "validFileOnly") == "1" else []


def files(params: Params) -> Query:
    """Files of a dataset or block, or by name; ``run_num`` and ``lumi_list`` choose by lumis and add ``run_num`` to the record.

    Raises:
        DbsError: 118, nothing says which files, run 1 without lumis or names, two lists at once, or sumOverLumi without a run.
    """
    function = "dbs.files.Files"
    require_one(params, FILE_FILTERS, "Files API with empty parameter map", function=function)
    runs, lumi_list, names = params.get("run_num", []), single(params, "lumi_list"), params.get("logical_file_name", [])
    if runs == ["1"] and lumi_list is None and not names:
        raise bad_parameter("files API does not support run_num=1 when no lumi and lfns list provided", function=function)
    if sum((len(runs) > 1, lumi_list is not None, len(names) > 1)) > 1:
        raise bad_parameter("cannot supply more than one list (lfn, run_num or lumi) at one query", function=function)
    sum_over_lumi = single(params, "sumOverLumi") == "1"
    if sum_over_lumi and (len(runs) != 1 or "-" in runs[0] or len(names) > 1):
        message = "When sumOverLumi=1, no lfn list or run_num list is allowed, and run_num is required"
        raise bad_parameter(message, function=function)
    conditions = named(params, {**FILE_FILTERS, "origin_site_name": "b.origin_site_name"}) + _valid_only(params)
    if any(params.get(name) for name in CONFIG_FILTERS):
        text, values = joined(named(params, CONFIG_FILTERS))
        source = "file_configs fc JOIN output_configs c USING (output_mod_config_id)"
        conditions.append((f"f.file_id IN (SELECT fc.file_id FROM {source} WHERE {text})", values))
    events = "sum(l.event_count)" if sum_over_lumi else "f.event_count"
    columns = _FILE_DETAIL.format(events=events) if is_set(params, "detail") else "f.logical_file_name"
    if not runs and lumi_list is None:
        return select(columns, FILE_TABLES, conditions, tail=" ORDER BY f.file_id")
    if runs:
        conditions.append(run_condition(runs))
    if lumi_list is not None:
        conditions.append(lumi_condition(lumi_list))
    grouped = " GROUP BY f.file_id, l.run_num" if sum_over_lumi else ""
    tables, tail = FILE_TABLES + " JOIN file_lumis l ON l.file_id = f.file_id", f"{grouped} ORDER BY f.file_id, l.run_num"
    return select(f"{columns}, l.run_num", tables, conditions, distinct=not sum_over_lumi, tail=tail)


def filelumis(params: Params) -> Query:
    """Lumis of files, one record per lumi.

    Raises:
        DbsError: 103, neither a block nor a file.
    """
    if not params.get("block_name") and not params.get("logical_file_name"):
        query = DbsError(Code.QUERY, "query error", function="dbs.executeAll", reason="no such column: FL.RUN_NUM")
        raise query.wrapped(Code.QUERY, "unable to query filelumis", function="dbs.filelumis.FileLumis")
    columns = "l.run_num, l.lumi_section_num, l.event_count, f.logical_file_name"
    conditions = named(params, FILE_FILTERS) + _valid_only(params)
    if params.get("run_num"):
        conditions.append(run_condition(params["run_num"]))
    return select(columns, FILE_TABLES + " JOIN file_lumis l ON l.file_id = f.file_id", conditions)


def table(
    columns: str, tables: str, filters: dict[str, str], *, needed: str = "", function: str = ""
) -> Callable[[Params], Query]:
    """A query by names alone; with ``needed``, the words of the refusal, one of them must be there."""

    def query(params: Params) -> Query:
        if needed:
            require_one(params, filters, needed, function=function)
        return select(columns, tables, named(params, filters))

    return query


def _relation(api: str, columns: str, pair: str, filters: dict[str, str]) -> Callable[[Params], Query]:
    return table(columns, pair, filters, needed=f"{' or '.join(filters)} is required for {api} api", function=f"dbs.{api}")


_FILE_PAIR = "file_parents fp JOIN files c ON c.file_id = fp.this_file_id JOIN files p ON p.file_id = fp.parent_file_id"
_BLOCK_PAIR = "block_parents bp JOIN blocks c ON c.block_id = bp.this_block_id JOIN blocks p ON p.block_id = bp.parent_block_id"
_DATASET_PAIR = (
    "dataset_parents dp JOIN datasets c ON c.dataset_id = dp.this_dataset_id"
    " JOIN datasets p ON p.dataset_id = dp.parent_dataset_id"
)

RELATIONS = {
    "fileparents": _relation(
        "fileparents",
        "c.logical_file_name, p.logical_file_name AS parent_logical_file_name, p.file_id AS parent_file_id",
        _FILE_PAIR + " JOIN blocks b ON b.block_id = c.block_id",
        {"logical_file_name": "c.logical_file_name", "block_name": "b.block_name"},
    ),
    "blockparents": _relation(
        "blockparents",
        "c.block_name AS this_block_name, p.block_name AS parent_block_name",
        _BLOCK_PAIR,
        {"block_name": "c.block_name"},
    ),
    "datasetparents": _relation(
        "datasetparents",
        "c.dataset AS this_dataset, p.dataset_id AS parent_dataset_id, p.dataset AS parent_dataset",
        _DATASET_PAIR,
        {"dataset": "c.dataset"},
    ),
}
