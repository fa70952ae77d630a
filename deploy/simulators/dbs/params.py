"""Query parameters of the DBS reader: which API accepts which, how lists and runs are written, and their SQL conditions."""
# ruff: noqa: S608 - only names written in this package are put into SQL text; every value is bound

import json
import re
from collections.abc import Iterable
from operator import index
from typing import Any

from deploy.simulators.dbs.errors import bad_parameter
from deploy.simulators.dbs.names import check_query_name

Params = dict[str, list[str]]
Condition = tuple[str, list[Any]]

_FILES = ("dataset", "block_name", "logical_file_name")
_CONFIG = ("release_version", "pset_hash", "app_name", "output_module_label", "global_tag")
_DATES = ("min_cdate", "max_cdate", "min_ldate", "max_ldate")

# what the simulator's clients ask by; the real server takes more
ACCEPTED: dict[str, tuple[str, ...]] = {
    "datasets": (
        *("dataset", "primary_ds_name", "data_tier_name", "acquisition_era_name", "processing_version", "prep_id"),
        *("dataset_access_type", "logical_file_name", "run_num", "detail", *_CONFIG, *_DATES),
    ),
    "blocks": (*_FILES, "data_tier_name", "origin_site_name", "run_num", "detail", *_DATES),
    "files": (*_FILES, *_CONFIG, "run_num", "origin_site_name", "lumi_list", "detail", "validFileOnly", "sumOverLumi"),
    "filelumis": ("logical_file_name", "block_name", "run_num", "validFileOnly"),
    "fileparents": ("logical_file_name", "block_name"),
    "filesummaries": ("block_name", "dataset"),
    "blocksummaries": ("block_name", "dataset", "detail"),
    "blockparents": ("block_name",),
    "blockorigin": ("origin_site_name", "dataset", "block_name"),
    "blockdump": ("block_name",),
    "datasetparents": ("dataset",),
    "outputconfigs": ("dataset", "logical_file_name", *_CONFIG),
    "datatiers": ("data_tier_name",),
    "physicsgroups": ("physics_group_name",),
    "datasetaccesstypes": ("dataset_access_type",),
    "primarydatasets": ("primary_ds_name", "primary_ds_type"),
    "acquisitioneras": ("acquisition_era_name",),
    "processingeras": ("processing_version",),
}

_RUNS = re.compile(r"(\d+)(?:-(\d+))?")


def parse_query(api: str, query: Iterable[tuple[str, str]]) -> Params:
    """The query string as lists of values; ``name=['a','b']`` and a repeated name are lists.

    Raises:
        DbsError: 118 the API does not accept the parameter; 113 a name does not match the lexicon.
    """
    params: Params = {}
    for name, text in query:
        if name not in ACCEPTED[api]:
            message = f"parameter '{name}' is not accepted by '{api}' API"
            raise bad_parameter(message, function="dbs.parameters.CheckQueryParameters")
        values = [text] if name == "lumi_list" else _split(text)
        for value in values:
            check_query_name(name, value)
        params.setdefault(name, []).extend(values)
    return params


def parse_payload(record: dict[str, Any]) -> Params:
    """The body of a look-up POST (``filelumis``, ``fileArray``, ..) in the form of a query; unknown names are ignored there."""
    params: Params = {}
    for name, value in record.items():
        if name == "lumi_list":
            params[name] = [value if isinstance(value, str) else json.dumps(value)]
        else:
            params[name] = [
                str(int(item) if isinstance(item, bool) else item) for item in (value if isinstance(value, list) else [value])
            ]
    return params


def _split(text: str) -> list[str]:
    if text.startswith("[") and text.endswith("]"):
        return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]
    return [text.replace("'", "")]


def single(params: Params, name: str) -> str | None:
    """The first value of a parameter, or None."""
    values = params.get(name)
    return values[0] if values else None


def is_set(params: Params, name: str) -> bool:
    """A flag: ``1``, ``true`` or ``True``."""
    return (single(params, name) or "").lower() in ("1", "true")


def name_condition(column: str, values: list[str]) -> Condition:
    """``column`` is one of ``values``; ``*`` in a single value is a wildcard."""
    if len(values) == 1:
        operator = "GLOB" if "*" in values[0] else "="
        return f"{column} {operator} ?", [values[0]]
    return f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(values)]


def run_condition(values: list[str]) -> Condition:
    """Lumis of one of the runs; ``a-b`` is a range.

    Raises:
        DbsError: 118, a value is neither a run nor a range.
    """
    spans = [(text, _RUNS.fullmatch(text.strip())) for text in values]
    binds: list[Any] = []
    for text, span in spans:
        if span is None:
            raise bad_parameter(f"invalid run input parameter {text}", function="dbs.ParseRuns")
        binds += [int(span[1]), int(span[2] or span[1])]
    return "(" + " OR ".join("l.run_num BETWEEN ? AND ?" for _ in spans) + ")", binds


def lumi_condition(text: str) -> Condition:
    """Lumis in ``[1, 2, 3]`` or ``[[1, 20], [30, 40]]`` (inclusive ranges).

    Raises:
        DbsError: 118, it is neither.
    """
    try:
        spans = ((item, item) if isinstance(item, int) else item for item in json.loads(text))
        pairs = [(index(first), index(last)) for first, last in spans]
    except (ValueError, TypeError) as error:
        raise bad_parameter(f"invalid lumi_list {text}", function="dbs.FlatLumis", reason=str(error)) from error
    ranges = " OR ".join("l.lumi_section_num BETWEEN ? AND ?" for _ in pairs)
    return f"({ranges or 1})", [number for pair in pairs for number in pair]


def date_conditions(params: Params, alias: str) -> list[Condition]:
    """Creation and modification dates from and to. A bound of 0 is no bound."""
    found: list[Condition] = []
    for short, column in (("cdate", f"{alias}.creation_date"), ("ldate", f"{alias}.last_modification_date")):
        for name, operator in ((f"min_{short}", ">="), (f"max_{short}", "<=")):
            text = single(params, name) or "0"
            if not text.isdigit():
                raise bad_parameter(f"invalid {name} parameter {text}", function="dbs.dates")
            if int(text):
                found.append((f"{column} {operator} ?", [int(text)]))
    return found
