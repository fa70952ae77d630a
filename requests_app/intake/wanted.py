"""What of an input dataset is wanted: lumi mask, run lists, block lists, parents, and how long it may grow. Owns their forms.

The lists stand at the top of a document or in the first part of a chain (docs/splitting.md, What is common).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dags_app.planning import lumis
from dags_app.planning.specs import InputSpec, LumiRanges
from requests_app.intake import lexicon
from requests_app.intake.chain import StepView
from requests_app.intake.findings import Findings
from requests_app.intake.known import LISTS
from requests_app.intake.values import Unreadable, flag, is_set, mapping, name, names, shown, whole

_MAX_RUNS = 10**6
#: A dataset that is still growing after two years is no input.
_MAX_OPEN_SECONDS = 2 * 366 * 86_400
_RUN, _LUMI = whole(1, 2**32 - 1), whole(0, 2**32 - 1)


def read_wanted(document: Mapping[str, object], first: StepView, findings: Findings) -> InputSpec:
    """The input dataset of the first part with everything that narrows it; runs that no list allows are told."""
    dataset = findings.require(*first.value("InputDataset"), name(lexicon.DATASET), "")
    blocks = names(lexicon.BLOCK)
    wanted = InputSpec(
        dataset=dataset,
        include_parents=_include_parents(document, first, findings),
        run_whitelist=findings.read(*first.either("RunWhitelist", findings), _runs, ()),
        run_blacklist=findings.read(*first.either("RunBlacklist", findings), _runs, ()),
        block_whitelist=findings.read(*first.either("BlockWhitelist", findings), blocks, ()),
        block_blacklist=findings.read(*first.either("BlockBlacklist", findings), blocks, ()),
        lumi_list=findings.read(*first.either("LumiList", findings), _lumi_ranges, {}),
        open_seconds=findings.read("OpenRunningTimeout", document.get("OpenRunningTimeout"), whole(0, _MAX_OPEN_SECONDS), 0),
    )
    _check_consistent(wanted, first, findings)
    return wanted


def _include_parents(document: Mapping[str, object], first: StepView, findings: Findings) -> bool:
    """ReqMgr2 writes its default, false, at the top of every chain; only true there can contradict the first part."""
    above = findings.read("IncludeParents", document.get("IncludeParents"), flag, fallback=False)
    if not first.prefix or not is_set(first.own.get("IncludeParents")):
        return above
    own = findings.read(*first.value("IncludeParents"), flag, fallback=False)
    if above and not own:
        findings.problem("IncludeParents", f"differs from {first.prefix}IncludeParents; give it once")
    return own


def refuse_lists_without_input(document: Mapping[str, object], first: StepView, findings: Findings) -> None:
    """A generation reads nothing: lists are a contradiction, time to grow has no effect."""
    for prefix, part in {"": document, first.prefix: first.own}.items():
        for key in LISTS:
            if asks(key, part.get(key), prefix, findings):
                findings.problem(prefix + key, "the request generates its events and reads no input dataset")
    if findings.read("OpenRunningTimeout", document.get("OpenRunningTimeout"), whole(0, _MAX_OPEN_SECONDS), 0):
        findings.warn("OpenRunningTimeout", "has no effect: the request reads no input dataset")


def refuse_lists_of_later_parts(later: Sequence[StepView], findings: Findings) -> None:
    """A later part reads what an earlier one made; a list there would be passed over."""
    for view in later:
        for key in LISTS:
            if asks(key, view.own.get(key), view.prefix, findings):
                kind = view.kind
                findings.problem(
                    view.prefix + key, f"has no effect after the first; give it as {kind.part if kind else ''}1.{key}"
                )


def asks(key: str, value: object, prefix: str, findings: Findings) -> bool:
    """Whether a list is given and asks for anything."""
    if key == "IncludeParents":
        return findings.read(prefix + key, value, flag, fallback=False)
    return is_set(value)


def _check_consistent(wanted: InputSpec, first: StepView, findings: Findings) -> None:
    """Lists that name another dataset or leave nothing are typing errors."""
    for key, blocks in (("BlockWhitelist", wanted.block_whitelist), ("BlockBlacklist", wanted.block_blacklist)):
        strangers = [block for block in blocks if wanted.dataset and block.partition("#")[0] != wanted.dataset]
        if strangers:
            findings.problem(_where(first, key), f"{shown(strangers[0])} is no block of {wanted.dataset}")
    if wanted.block_whitelist and not set(wanted.block_whitelist) - set(wanted.block_blacklist):
        findings.problem(_where(first, "BlockWhitelist"), "every block of it is on BlockBlacklist, too")
    allowed = set(wanted.run_whitelist) - set(wanted.run_blacklist)
    if wanted.run_whitelist and not allowed:
        findings.problem(_where(first, "RunWhitelist"), "every run of it is on RunBlacklist, too")
    elif wanted.lumi_list:
        runs = set(wanted.lumi_list) - set(wanted.run_blacklist)
        if not (runs & allowed if wanted.run_whitelist else runs):
            findings.problem(_where(first, "LumiList"), "the run lists leave no run of it")


def _where(first: StepView, key: str) -> str:
    return first.prefix + key if is_set(first.own.get(key)) else key


def _runs(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MAX_RUNS:
        raise Unreadable(f"must be a list of run numbers, not {shown(value)}")
    return tuple(sorted({_RUN(run) for run in value}))


def _lumi_ranges(value: object) -> LumiRanges:
    """``{run: [[first, last], ...]}``, also as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise Unreadable(f"must be a map {{run: [[first, last], ...]}}, not {shown(value)}") from error
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
