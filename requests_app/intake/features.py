"""What a document asks for beyond today's WMS2, and what in it is unknown. Owns the sweep over all fields, not the tables."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from requests_app.intake.chain import Part
from requests_app.intake.documents import sub_documents
from requests_app.intake.known import (
    FEATURES,
    GENERATION_ONLY,
    IRRELEVANT,
    IRRELEVANT_STEP,
    ONE_JOB_FEATURES,
    PILEUP,
    PLAN_ONLY,
    STEP_FEATURES,
    TRUST,
    USED_STEP,
    USED_TASK,
    USED_TOP,
    WARNED,
    WORK,
    Feature,
)
from requests_app.intake.values import Unreadable, flag, is_set

_MAX_UNKNOWN_NAMED = 30


def sweep_all_features(document: Part) -> None:
    """Refuse everything that is not supported yet, by name: at the top, in steps and in tasks."""
    parts = [replace(document, own=own, prefix=f"{key}.") for key, own in sub_documents(document.own)]  # counted or not
    for part in (document, *parts):
        _sweep(part, FEATURES)
        if is_set(part.own.get(PLAN_ONLY)):
            part.problem(PLAN_ONLY, "is no ReqMgr2 field: only plan_request reads it")
    for key, value in document.own.items():
        if key.startswith("Skim") and is_set(value):
            document.later(key, "skims")
    for part in parts:
        _sweep(part, STEP_FEATURES if part.prefix.startswith("Task") else {**STEP_FEATURES, **ONE_JOB_FEATURES})


def _sweep(part: Part, features: Mapping[str, Feature]) -> None:
    for key, feature in features.items():
        try:
            if key in part.own and feature.asks(part.own[key]):
                part.later(key, feature.what)
        except Unreadable as error:
            part.problem(key, str(error))


def sweep_fields(document: Part, steps: Collection[Part]) -> None:
    """Warn of fields that are not used or not known, and refuse fields that stand where they have no effect."""
    known = USED_TOP | set(IRRELEVANT) | set(WARNED) | set(FEATURES) | {PLAN_ONLY}
    _sweep_level(document, known | {key for key, _ in sub_documents(document.own)})
    for step in (step for step in steps if step.prefix):
        used = USED_TASK if step.is_task else USED_STEP
        _sweep_level(step, used | set(IRRELEVANT_STEP) | set(FEATURES) | set(STEP_FEATURES) | set(ONE_JOB_FEATURES))
        if step.number == 1:
            for key, text in misplaced_work(step):
                document.problem(key, text)
        else:
            _check_later_step(step)


def warn_of_generation_fields(first: Part) -> None:
    """Warn of what only a generation would use, when the request reads a dataset instead (1 is ReqMgr2's default of these)."""
    unused = GENERATION_ONLY if first.prefix else (*GENERATION_ONLY, "EventsPerLumi")
    for part in (first.document, first):
        for key in unused:
            if is_set(part.own.get(key)) and part.own.get(key) not in (0, 1, "AutomaticSeeding"):
                part.warn(key, "not used: the request reads an input dataset")


def check_lhe_input(document: Part, steps: Iterable[Part], *, reads_input: bool) -> None:
    """LHE files are read by the source of the first part, which takes the events that the job's numbers name."""
    asked = document.read("LheInputFiles", flag, fallback=False)
    for step in (step for step in steps if step.prefix):
        own = step.read("LheInputFiles", flag, fallback=False)
        asked = asked or own
        if own and step.number > 1:
            step.problem("LheInputFiles", "only the first part of a chain generates from LHE files")
    if asked and reads_input:
        document.warn("LheInputFiles", "not used: the request reads an input dataset")


def refuse_pileup_above_steps(document: Part, parts: Sequence[Part]) -> None:
    """At the top of a chain it does not say which step mixes it."""
    for key in PILEUP if parts and parts[0].prefix else ():
        if is_set(document.own.get(key)):
            document.problem(key, f"has no effect at the top of a chain; give it in the {parts[0].word} that mixes it")


def read_trust(document: Part, *, reads_input: bool, reads_pileup: bool) -> tuple[bool, bool]:
    """(TrustSitelists, TrustPUSitelists), each only where there are such files to read."""
    found = []
    for key, matters in zip(TRUST, (reads_input, reads_pileup), strict=True):
        trusted = document.read(key, flag, fallback=False)
        if trusted and not matters:
            document.warn(key, "has no effect: the request reads no such files")
        found.append(trusted and matters)
    return found[0], found[1]


def _sweep_level(part: Part, known: Collection[str]) -> None:
    unknown: list[str] = []
    for key, value in part.own.items():
        if key in WARNED:
            if is_set(value) and value is not False and value not in (0, "false", "False"):
                part.warn(key, WARNED[key])
        elif key not in known and not key.startswith("Skim"):
            unknown.append(key)
    for key in unknown[:_MAX_UNKNOWN_NAMED]:
        close = difflib.get_close_matches(key[:60], known, n=1, cutoff=0.8)
        part.warn(key, "unknown field, not used" + (f" (did you mean {close[0]}?)" if close else ""))
    if len(unknown) > _MAX_UNKNOWN_NAMED:
        more = f"{len(unknown) - _MAX_UNKNOWN_NAMED} more unknown fields, not used"
        part.findings.warn(part.prefix.rstrip(".") or "document", more)


def misplaced_work(first: Part) -> Iterator[tuple[str, str]]:
    """(field, what to do) for the work of a chain's first part that stands at the top, where nothing reads it."""
    if first.kind is None:
        return
    for key in WORK:
        value = first.top.get(key)
        if is_set(value) and value != first.own.get(key):
            yield key, f"has no effect at the top of a {first.kind.request_type}; give it as {first.prefix}{key}"


def _check_later_step(step: Part) -> None:
    if is_set(step.own.get("InputDataset")):
        step.later("InputDataset", f"an input dataset for a {step.word} after the first")
    if is_set(step.own.get("RequestNumEvents")):
        step.warn("RequestNumEvents", f"not used: the first {step.word} says how many events are made")
