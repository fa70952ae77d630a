"""Which names DBS takes: the writer's lexicon (new objects) and the reader's (query parameters, wildcards allowed).

``bulkblocks`` does not look at these rules (measured: a name with a space was stored); every other door does.
"""

import re
from re import Pattern

from deploy.simulators.dbs.errors import Code, bad_parameter, bad_value

_WORD = r"[a-zA-Z0-9\-_]+"
_TIER = r"[A-Z0-9\-_]+"

_Rule = tuple[int, tuple[Pattern[str], ...]]


def _rule(max_length: int, *patterns: str) -> _Rule:
    return max_length, tuple(re.compile(f"^{pattern}$") for pattern in patterns)


_WRITER: dict[str, _Rule] = {
    "dataset": _rule(301, r"/[a-zA-Z0-9\-_]{1,99}/[a-zA-Z0-9.\-_]{1,199}/[A-Z0-9\-]{1,50}"),
    "data_tier_name": _rule(99, r"[A-Z][A-Z0-9\-]{2,99}"),
    "processed_ds_name": _rule(199, r"[a-zA-Z][a-zA-Z0-9_]*(-[a-zA-Z0-9_]+){0,2}-v[0-9]*"),
    "acquisition_era_name": _rule(120, r"[a-zA-Z][a-zA-Z0-9_]*"),
    "physics_group_name": _rule(100, r"[a-zA-Z0-9][a-zA-Z0-9\-_]*"),
    "dataset_access_type": _rule(100, r"[A-Z_]+"),
    "logical_file_name": _rule(
        500,
        # /store/<kind>/<era>/<primary>/<tier>/<processing>[/run in three parts]/<counter>/<file>;
        # backfill and unmerged have one level more
        rf"/[a-z]+/[a-z0-9]+(/[a-z0-9]+)?/{_WORD}/{_WORD}/{_TIER}/{_WORD}((/[0-9]+){{3}})?/[0-9]+/{_WORD}\.root",
        rf"/store/(temp/)*(user|group)/[a-zA-Z0-9.\-_]+/[a-zA-Z]{_WORD}/({_WORD}/)+{_WORD}\.root",
        rf"/store/mc/{_WORD}/{_WORD}/{_WORD}/{_WORD}(/{_WORD})*/{_WORD}\.root",
        rf"/store/results/{_WORD}/{_WORD}/{_WORD}/{_TIER}/{_WORD}/[0-9]+/{_WORD}\.root",
        rf"/store/lhe/({_WORD}/)*[0-9]+/{_WORD}\.lhe(\.xz)?",
    ),
}

_READER_PRIMARY, _READER_PROCESSED = r"/(\*|[a-zA-Z0-9*][a-zA-Z0-9_\-*]*)", r"/(\*|[a-zA-Z0-9_.\-*]{1,199})"
_READER: dict[str, _Rule] = {
    "dataset": _rule(301, rf"{_READER_PRIMARY}({_READER_PROCESSED})?(/(\*|[A-Z0-9\-*]{{1,50}}))?"),
    "block_name": _rule(402, rf"{_READER_PRIMARY}{_READER_PROCESSED}/(\*|[A-Z0-9\-*]{{1,99}})#(\*|[a-zA-Z0-9.\-_*]{{1,100}})"),
    "logical_file_name": _rule(500, r"/store/[A-Za-z0-9._\-/*]+"),
    "data_tier_name": _rule(99, r"[A-Z0-9\-*]{1,99}"),
    "primary_ds_name": _rule(99, r"[a-zA-Z0-9\-_*]+"),
    "processing_version": _rule(20, r"[0-9*]+"),
    "release_version": _rule(100, r"(CMSSW(_\d+){3}(_[a-zA-Z0-9_]+)?|[A-Za-z0-9_]*\*[A-Za-z0-9_*]*)"),
}

BLOCK_HASH_MAX_LENGTH = 36
ALL_DATASETS = "/*/*/*"


def _matches(rule: _Rule, value: str) -> bool:
    length, patterns = rule
    return len(value) <= length and any(pattern.match(value) for pattern in patterns)


def check_new_name(key: str, value: str, what: str, *, function: str) -> None:
    """A name of an object to be created.

    Raises:
        DbsError: code 113, it does not match the writer's lexicon.
    """
    rule = _WRITER.get(key)
    if rule is not None and not _matches(rule, value):
        raise bad_value(what, f"unable to match '{key}' value '{value}'", function=function)


def check_query_name(key: str, value: str) -> None:
    """A name in a query; ``*`` is a wildcard.

    Raises:
        DbsError: code 113, it does not match the reader's lexicon, or a block's hash is longer than 36 characters.
    """
    rule = _READER.get(key)
    if rule is None:
        return
    if key == "block_name" and value.count("#") != 1:
        problem, checker = f"wrong parts in block name {value}", "dbs.validator.checkBlockHash"
    elif key == "block_name" and len(value.partition("#")[2]) > BLOCK_HASH_MAX_LENGTH:
        problem, checker = f"wrong length of block hash {value}", "dbs.validator.checkBlockHash"
    elif not _matches(rule, value) or value == ALL_DATASETS:
        problem, checker = f"unable to match '{key}' value '{value}'", "dbs.validator.Check"
    else:
        return
    raise bad_parameter(problem, function=checker).wrapped(Code.VALIDATION, "not str type", function="dbs.Validate")
