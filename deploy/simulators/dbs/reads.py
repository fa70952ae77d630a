"""GET queries of DBS, as SQL. Every function turns parameters into one ``Query`` whose rows are streamed by the service.

Kept as measured: ``/datasets`` shows only VALID datasets unless told otherwise; ``/filelumis`` gives one record per lumi;
``/files`` refuses ``run_num=1`` without lumis or file names.
"""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.simulators.dbs.errors import Code, DbsError
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


def _select(columns: str, tables: str, conditions: list[Condition], *, distinct: bool = False, tail: str = "") -> Query:
    where = " AND ".join(text for text, _ in conditions)
    values = tuple(value for _, binds in conditions for value in binds)
    sql = f"SELECT {'DISTINCT ' if distinct else ''}{columns} FROM {tables}" + (f" WHERE {where}" if where else "") + tail
    return Query(sql, values)


def _named(params: Params, columns: dict[str, str]) -> list[Condition]:
    return [name_condition(column, params[name]) for name, column in columns.items() if params.get(name)]


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
    "primary_ds_type": "pt.primary_ds_type",
    "processed_ds_name": "d.processed_ds_name",
    "data_tier_name": "t.data_tier_name",
    "acquisition_era_name": "ae.acquisition_era_name",
    "processing_version": "pe.processing_version",
    "physics_group_name": "pg.physics_group_name",
    "prep_id": "d.prep_id",
    "create_by": "d.create_by",
    "last_modified_by": "d.last_modified_by",
    "dataset_id": "d.dataset_id",
    "is_dataset_valid": "d.is_dataset_valid",
}
_CONFIG_FILTERS = {
    "release_version": "c.release_version",
    "pset_hash": "c.pset_hash",
    "app_name": "c.app_name",
    "output_module_label": "c.output_module_label",
    "global_tag": "c.global_tag",
}


def datasets(params: Params) -> Query:
    """Datasets by name and attributes; ``detail=1`` for all columns, ``dataset_access_type=*`` for all types."""
    conditions = _named(params, _DATASET_FILTERS) + date_conditions(params, "d")
    access_type = single(params, "dataset_access_type") or "VALID"
    if access_type != "*":
        conditions.append(name_condition("at.dataset_access_type", params.get("dataset_access_type") or ["VALID"]))
    tables, columns = _DATASET_TABLES, _DATASET_DETAIL if is_set(params, "detail") else "d.dataset"
    if any(params.get(name) for name in _CONFIG_FILTERS):
        tables += " JOIN dataset_configs dc USING (dataset_id) JOIN output_configs c USING (output_mod_config_id)"
        conditions += _named(params, _CONFIG_FILTERS)
    if params.get("parent_dataset"):
        tables += (
            " JOIN dataset_parents dp ON dp.this_dataset_id = d.dataset_id"
            " JOIN datasets pd ON pd.dataset_id = dp.parent_dataset_id"
        )
        columns += ", pd.dataset AS parent_dataset"
        conditions.append(name_condition("pd.dataset", params["parent_dataset"]))
    if params.get("logical_file_name"):
        text, values = name_condition("f.logical_file_name", params["logical_file_name"])
        conditions.append((f"d.dataset_id IN (SELECT f.dataset_id FROM files f WHERE {text})", values))
    if params.get("run_num"):
        text, values = run_condition("l.run_num", params["run_num"])
        conditions.append(
            (f"d.dataset_id IN (SELECT f.dataset_id FROM files f JOIN file_lumis l USING (file_id) WHERE {text})", values)
        )
    return _select(columns, tables, conditions, distinct=True, tail=" ORDER BY d.dataset_id")


def blocks(params: Params) -> Query:
    """Blocks of a dataset, by name, site, file or run; ``detail=1`` for all columns.

    Raises:
        DbsError: 118, nothing says which blocks.
    """
    if not any(params.get(name) for name in ("dataset", "block_name", "data_tier_name", "logical_file_name", "origin_site_name")):
        raise DbsError(
            Code.PARAMETERS,
            "Blocks API requires one of the following: [dataset block_name data_tier_name logical_file_name]",
            function="dbs.blocks.Blocks",
        )
    columns = "b.block_name"
    if is_set(params, "detail"):
        columns = (
            "b.block_id, b.block_name, b.open_for_writing, b.block_size, b.file_count, b.dataset_id, d.dataset,"
            " b.origin_site_name, b.creation_date, b.create_by, b.last_modification_date, b.last_modified_by"
        )
    conditions = date_conditions(params, "b") + _named(
        params,
        {
            "dataset": "d.dataset",
            "block_name": "b.block_name",
            "data_tier_name": "t.data_tier_name",
            "origin_site_name": "b.origin_site_name",
            "open_for_writing": "b.open_for_writing",
        },
    )
    if params.get("logical_file_name"):
        text, values = name_condition("f.logical_file_name", params["logical_file_name"])
        conditions.append((f"b.block_id IN (SELECT f.block_id FROM files f WHERE {text})", values))
    if params.get("run_num"):
        text, values = run_condition("l.run_num", params["run_num"])
        conditions.append(
            (f"b.block_id IN (SELECT f.block_id FROM files f JOIN file_lumis l USING (file_id) WHERE {text})", values)
        )
    return _select(
        columns,
        "blocks b JOIN datasets d USING (dataset_id) JOIN data_tiers t USING (data_tier_id)",
        conditions,
        tail=" ORDER BY b.block_id",
    )


_FILE_DETAIL = (
    "f.file_id, f.logical_file_name, f.is_file_valid, f.dataset_id, d.dataset, f.block_id, b.block_name, f.file_type_id,"
    " ft.file_type, f.check_sum, {events} AS event_count, f.file_size, f.adler32, f.md5, f.auto_cross_section,"
    " f.creation_date, f.create_by, f.last_modification_date, f.last_modified_by"
)
_FILE_TABLES = (
    "files f JOIN file_data_types ft USING (file_type_id) JOIN datasets d ON d.dataset_id = f.dataset_id"
    " JOIN dataset_access_types at ON at.dataset_access_type_id = d.dataset_access_type_id"
    " JOIN blocks b ON b.block_id = f.block_id"
)
_VALID_ONLY: list[Condition] = [("f.is_file_valid = 1", []), ("at.dataset_access_type IN ('VALID', 'PRODUCTION')", [])]


def files(params: Params) -> Query:
    """Files of a dataset or block, or by name; ``run_num`` and ``lumi_list`` choose by lumis and add ``run_num`` to the record.

    Raises:
        DbsError: 118, nothing says which files, run 1 without lumis or names, two lists at once, or sumOverLumi without a run.
    """
    function = "dbs.files.Files"
    if not any(params.get(name) for name in ("dataset", "block_name", "logical_file_name")):
        raise DbsError(Code.PARAMETERS, "Files API with empty parameter map", function=function)
    runs, lumi_list, names = params.get("run_num", []), single(params, "lumi_list"), params.get("logical_file_name", [])
    if runs == ["1"] and lumi_list is None and not names:
        raise DbsError(
            Code.PARAMETERS, "files API does not support run_num=1 when no lumi and lfns list provided", function=function
        )
    if sum((len(runs) > 1, lumi_list is not None, len(names) > 1)) > 1:
        raise DbsError(Code.PARAMETERS, "cannot supply more than one list (lfn, run_num or lumi) at one query", function=function)
    sum_over_lumi = single(params, "sumOverLumi") == "1"
    if sum_over_lumi and (len(runs) != 1 or "-" in runs[0] or len(names) > 1):
        raise DbsError(
            Code.PARAMETERS,
            "When sumOverLumi=1, no lfn list or run_num list is allowed, and run_num is required",
            function=function,
        )
    by_name = {"dataset": "d.dataset", "block_name": "b.block_name", "logical_file_name": "f.logical_file_name"}
    conditions = _named(params, {**by_name, "origin_site_name": "b.origin_site_name"})
    if single(params, "validFileOnly") == "1":
        conditions += _VALID_ONLY
    if any(params.get(name) for name in _CONFIG_FILTERS):
        text, values = _join(_named(params, _CONFIG_FILTERS))
        source = "file_configs fc JOIN output_configs c USING (output_mod_config_id)"
        conditions.append((f"f.file_id IN (SELECT fc.file_id FROM {source} WHERE {text})", values))
    detail = is_set(params, "detail")
    columns = _FILE_DETAIL.format(events="f.event_count") if detail else "f.logical_file_name"
    if not runs and lumi_list is None:
        return _select(columns, _FILE_TABLES, conditions, tail=" ORDER BY f.file_id")
    if runs:
        conditions.append(run_condition("l.run_num", runs))
    if lumi_list is not None:
        conditions.append(lumi_condition("l.lumi_section_num", lumi_list))
    tables = _FILE_TABLES + " JOIN file_lumis l ON l.file_id = f.file_id"
    if sum_over_lumi:
        columns = _FILE_DETAIL.format(events="sum(l.event_count)") if detail else columns
        return _select(f"{columns}, l.run_num", tables, conditions, tail=" GROUP BY f.file_id, l.run_num ORDER BY f.file_id")
    return _select(f"{columns}, l.run_num", tables, conditions, distinct=True, tail=" ORDER BY f.file_id, l.run_num")


def _join(conditions: list[Condition]) -> Condition:
    return " AND ".join(text for text, _ in conditions), [value for _, binds in conditions for value in binds]


def filelumis(params: Params) -> Query:
    """Lumis of files, one record per lumi.

    Raises:
        DbsError: 103, neither a block nor a file; 118, lists of both runs and files.
    """
    function = "dbs.filelumis.FileLumis"
    if not params.get("block_name") and not params.get("logical_file_name"):
        query = DbsError(Code.QUERY, "query error", function="dbs.executeAll", reason="no such column: FL.RUN_NUM")
        raise query.wrapped(Code.QUERY, "unable to query filelumis", function=function)
    if len(params.get("run_num", [])) > 1 and len(params.get("logical_file_name", [])) > 1:
        raise DbsError(Code.PARAMETERS, "filelumis API supports single list of lfns or run numbers", function=function)
    conditions = _named(params, {"logical_file_name": "f.logical_file_name", "block_name": "b.block_name"})
    if params.get("run_num"):
        conditions.append(run_condition("l.run_num", params["run_num"]))
    if single(params, "validFileOnly") == "1":
        conditions += _VALID_ONLY
    columns = "l.run_num, l.lumi_section_num, l.event_count, f.logical_file_name"
    return _select(columns, _FILE_TABLES + " JOIN file_lumis l ON l.file_id = f.file_id", conditions)


def _relation(api: str, columns: str, tables: str, filters: dict[str, str]) -> Callable[[Params], Query]:
    """A query over a parent/child table; one of its filters is required."""

    def query(params: Params) -> Query:
        if not any(params.get(name) for name in filters):
            raise DbsError(Code.PARAMETERS, f"{' or '.join(filters)} is required for {api} api", function=f"dbs.{api}")
        return _select(columns, tables, _named(params, filters))

    return query


_FILE_PAIR = "file_parents fp JOIN files c ON c.file_id = fp.this_file_id JOIN files p ON p.file_id = fp.parent_file_id"
_BLOCK_PAIR = "block_parents bp JOIN blocks c ON c.block_id = bp.this_block_id JOIN blocks p ON p.block_id = bp.parent_block_id"
_DATASET_PAIR = (
    "dataset_parents dp JOIN datasets c ON c.dataset_id = dp.this_dataset_id"
    " JOIN datasets p ON p.dataset_id = dp.parent_dataset_id"
)

fileparents = _relation(
    "fileparents",
    "c.logical_file_name, p.logical_file_name AS parent_logical_file_name, p.file_id AS parent_file_id",
    _FILE_PAIR + " JOIN blocks b ON b.block_id = c.block_id",
    {"logical_file_name": "c.logical_file_name", "block_name": "b.block_name", "block_id": "b.block_id"},
)
filechildren = _relation(
    "filechildren",
    "p.logical_file_name, c.logical_file_name AS child_logical_file_name, c.file_id AS child_file_id",
    _FILE_PAIR + " JOIN blocks b ON b.block_id = p.block_id",
    {"logical_file_name": "p.logical_file_name", "block_name": "b.block_name", "block_id": "b.block_id"},
)
blockparents = _relation(
    "blockparents",
    "c.block_name AS this_block_name, p.block_name AS parent_block_name",
    _BLOCK_PAIR,
    {"block_name": "c.block_name"},
)
blockchildren = _relation("blockchildren", "c.block_name", _BLOCK_PAIR, {"block_name": "p.block_name"})
datasetparents = _relation(
    "datasetparents",
    "c.dataset AS this_dataset, p.dataset_id AS parent_dataset_id, p.dataset AS parent_dataset",
    _DATASET_PAIR,
    {"dataset": "c.dataset"},
)
datasetchildren = _relation(
    "datasetchildren",
    "c.dataset_id AS child_dataset_id, c.dataset AS child_dataset, p.dataset",
    _DATASET_PAIR,
    {"dataset": "p.dataset"},
)


def blockorigin(params: Params) -> Query:
    """Blocks by the site they were made at."""
    if not any(params.get(name) for name in ("dataset", "block_name", "origin_site_name")):
        raise DbsError(
            Code.PARAMETERS, "origin_site_name, dataset or block_name is required", function="dbs.blockorigin.BlockOrigin"
        )
    columns = (
        "b.block_name, b.origin_site_name, d.dataset, b.open_for_writing, b.file_count, b.block_size, b.creation_date,"
        " b.create_by, b.last_modification_date, b.last_modified_by"
    )
    filters = {"dataset": "d.dataset", "block_name": "b.block_name", "origin_site_name": "b.origin_site_name"}
    return _select(columns, "blocks b JOIN datasets d USING (dataset_id)", _named(params, filters), tail=" ORDER BY b.block_id")
