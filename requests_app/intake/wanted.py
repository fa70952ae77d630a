"""What of an input dataset is wanted: lumi mask, run lists, block lists, parents, and how long it may grow. Owns their forms.

The lists stand at the top of a document or in the first part of a chain (docs/splitting.md, What is common).
"""

from __future__ import annotations

from collections.abc import Sequence

from dags_app.planning import lumis
from dags_app.planning.specs import InputSpec, LumiRanges
from requests_app.intake import lexicon
from requests_app.intake.chain import Part
from requests_app.intake.known import LISTS
from requests_app.intake.values import Unreadable, flag, from_json, is_set, mapping, name, names, shown, whole

_MAX_RUNS = 10**6
#: A dataset that is still growing after two years is no input.
_MAX_OPEN_SECONDS = 2 * 366 * 86_400
_RUN, _LUMI = whole(1, 2**32 - 1), whole(0, 2**32 - 1)


def read_wanted(first: Part) -> InputSpec:
    """The input dataset of the first part with everything that narrows it; lists that leave no run are refused."""
    blocks = names(lexicon.BLOCK)
    wanted = InputSpec(
        dataset=first.require("InputDataset", name(lexicon.DATASET), ""),
        include_parents=_include_parents(first),
        run_whitelist=first.read_either("RunWhitelist", _runs, ()),
        run_blacklist=first.read_either("RunBlacklist", _runs, ()),
        block_whitelist=first.read_either("BlockWhitelist", blocks, ()),
        block_blacklist=first.read_either("BlockBlacklist", blocks, ()),
        lumi_list=first.read_either("LumiList", _lumi_ranges, {}),
        open_seconds=first.document.read("OpenRunningTimeout", whole(0, _MAX_OPEN_SECONDS), 0),
    )
    _check_consistent(wanted, first)
    return wanted


def _include_parents(first: Part) -> bool:
    """ReqMgr2 writes its default, false, at the top of every chain; only true there can contradict the first part."""
    above = first.document.read("IncludeParents", flag, fallback=False)
    if not first.prefix or not is_set(first.own.get("IncludeParents")):
        return above
    own = first.read("IncludeParents", flag, fallback=False)
    if above and not own:
        first.document.problem("IncludeParents", f"differs from {first.prefix}IncludeParents; give it once")
    return own


def refuse_lists_without_input(first: Part) -> None:
    """A generation reads nothing: lists are a contradiction, time to grow has no effect."""
    for part in (first.document, first):
        for key in LISTS:
            if asks(part, key):
                part.problem(key, "the request generates its events and reads no input dataset")
    if first.document.read("OpenRunningTimeout", whole(0, _MAX_OPEN_SECONDS), 0):
        first.document.warn("OpenRunningTimeout", "has no effect: the request reads no input dataset")


def refuse_lists_of_later_parts(later: Sequence[Part]) -> None:
    """A later part reads what an earlier one made; a list there would be passed over."""
    for part in later:
        for key in LISTS:
            if asks(part, key):
                part.problem(key, f"has no effect after the first; give it as {part.kind.part if part.kind else ''}1.{key}")


def asks(part: Part, key: str) -> bool:
    """Whether a list is given and asks for anything."""
    return part.read(key, flag, fallback=False) if key == "IncludeParents" else is_set(part.own.get(key))


def _check_consistent(wanted: InputSpec, first: Part) -> None:
    """Lists that name another dataset or leave nothing are typing errors."""
    for key, blocks in (("BlockWhitelist", wanted.block_whitelist), ("BlockBlacklist", wanted.block_blacklist)):
        strangers = [block for block in blocks if wanted.dataset and block.partition("#")[0] != wanted.dataset]
        if strangers:
            _where(first, key).problem(key, f"{shown(strangers[0])} is no block of {wanted.dataset}")
    if wanted.block_whitelist and not set(wanted.block_whitelist) - set(wanted.block_blacklist):
        _where(first, "BlockWhitelist").problem("BlockWhitelist", "every block of it is on BlockBlacklist, too")
    allowed = set(wanted.run_whitelist) - set(wanted.run_blacklist)
    if wanted.run_whitelist and not allowed:
        _where(first, "RunWhitelist").problem("RunWhitelist", "every run of it is on RunBlacklist, too")
    elif wanted.lumi_list:
        runs = set(wanted.lumi_list) - set(wanted.run_blacklist)
        if not (runs & allowed if wanted.run_whitelist else runs):
            _where(first, "LumiList").problem("LumiList", "the run lists leave no run of it")


def _where(first: Part, key: str) -> Part:
    return first if is_set(first.own.get(key)) else first.document


def _runs(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MAX_RUNS:
        raise Unreadable(f"must be a list of run numbers, not {shown(value)}")
    return tuple(sorted({_RUN(run) for run in value}))


def _lumi_ranges(value: object) -> LumiRanges:
    """``{run: [[first, last], ...]}``, also as JSON text."""
    value = from_json(value, "a map {run: [[first, last], ...]}")
    intervals = []
    for run, pairs in mapping(value).items():
        if not isinstance(pairs, list):
            raise Unreadable(f"run {shown(run)}: must be a list of [first, last], not {shown(pairs)}")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise Unreadable(f"run {shown(run)}: must hold [first, last], not {shown(pair)}")
            first, last = _LUMI(pair[0]), _LUMI(pair[1])
            if first > last:
                raise Unreadable(f"run {shown(run)}: lumis {first} to {last} end before they begin")
            intervals.append((_RUN(run), first, last))
    if value and not intervals:  # no interval at all would otherwise mean everything
        raise Unreadable("names runs and no lumi of them; give their [first, last], or leave it out to take everything")
    return lumis.from_intervals(intervals)
