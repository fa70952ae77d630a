"""What a document asks for beyond today's WMS2, and what in it is unknown. Owns the sweep over all fields, not the tables."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from requests_app.intake.chain import StepView
from requests_app.intake.documents import sub_documents
from requests_app.intake.findings import Findings
from requests_app.intake.known import (
    FEATURES,
    GENERATION_ONLY,
    IRRELEVANT,
    IRRELEVANT_STEP,
    PLAN_ONLY,
    STEP_FEATURES,
    USED_STEP,
    USED_TASK,
    USED_TOP,
    WARNED,
    WORK,
    Feature,
)
from requests_app.intake.values import Unreadable, flag, is_set

_MAX_UNKNOWN_NAMED = 30


def sweep_features(document: Mapping[str, object], features: Mapping[str, Feature], findings: Findings) -> None:
    """Refuse each of ``features`` that the document asks for, by name: at the top, in steps and in tasks."""
    _sweep(document, "", features, findings)
    for key, inner in sub_documents(document):
        _sweep(inner, f"{key}.", features, findings)


def sweep_all_features(document: Mapping[str, object], findings: Findings) -> None:
    """Refuse everything that is not supported yet."""
    sweep_features(document, FEATURES, findings)
    for key in document:
        if key.startswith("Skim") and is_set(document[key]):
            findings.later(key, "skims")
    for key, inner in sub_documents(document):
        _sweep(inner, f"{key}.", STEP_FEATURES, findings)


def _sweep(fields: Mapping[str, object], prefix: str, features: Mapping[str, Feature], findings: Findings) -> None:
    for key, feature in features.items():
        try:
            asked = key in fields and feature.asks(fields[key])
        except Unreadable as error:
            findings.problem(prefix + key, str(error))
            continue
        if asked:
            findings.later(prefix + key, feature.what)


def sweep_fields(document: Mapping[str, object], steps: Collection[StepView], findings: Findings) -> None:
    """Warn of fields that are not used or not known, and refuse fields that stand where they have no effect."""
    is_chain = any(step.prefix for step in steps)
    known = USED_TOP | set(IRRELEVANT) | set(WARNED) | set(FEATURES) | {PLAN_ONLY}
    _sweep_level(document, "", known | {key for key, _ in sub_documents(document)}, findings)
    if not is_chain:
        return
    for step in steps:
        used = USED_TASK if step.is_task else USED_STEP
        _sweep_level(step.own, step.prefix, used | set(IRRELEVANT_STEP) | set(FEATURES) | set(STEP_FEATURES), findings)
        if step.number == 1:
            _check_misplaced(document, step, findings)
        else:
            _check_later_step(step, findings)


def warn_of_generation_fields(document: Mapping[str, object], first: StepView, findings: Findings) -> None:
    """Warn of what only a generation would use, when the request reads a dataset instead (1 is ReqMgr2's default of these)."""
    unused = GENERATION_ONLY if first.prefix else (*GENERATION_ONLY, "EventsPerLumi")
    for prefix, part in {"": document, first.prefix: first.own}.items():
        for key in unused:
            if is_set(part.get(key)) and part.get(key) not in (0, 1, "AutomaticSeeding"):
                findings.warn(prefix + key, "not used: the request reads an input dataset")


def check_lhe_input(
    document: Mapping[str, object], steps: Collection[StepView], *, reads_input: bool, findings: Findings
) -> None:
    """LHE files are read by the source of the first part, which takes the events that the job's numbers name."""
    asked = findings.read("LheInputFiles", document.get("LheInputFiles"), flag, fallback=False)
    for step in (step for step in steps if step.prefix):
        own = findings.read(*step.value("LheInputFiles"), flag, fallback=False)
        asked = asked or own
        if own and step.number > 1:
            findings.problem(step.prefix + "LheInputFiles", "only the first part of a chain generates from LHE files")
    if asked and reads_input:
        findings.warn("LheInputFiles", "not used: the request reads an input dataset")


def check_valid_status(document: Mapping[str, object], findings: Findings) -> None:
    """Datasets are VALID when all of them are whole, whoever asked for it earlier."""
    if document.get("ValidStatus") == "VALID":
        findings.warn("ValidStatus", "datasets are PRODUCTION while they grow; they become VALID when the request completes")


def refuse_plan_only(document: Mapping[str, object], findings: Findings) -> None:
    """Refuse splitting arguments that ReqMgr2 has no field for; only ``plan_request`` reads them."""
    for prefix, part in (("", document), *((f"{key}.", inner) for key, inner in sub_documents(document))):
        if is_set(part.get(PLAN_ONLY)):
            findings.problem(prefix + PLAN_ONLY, "is no ReqMgr2 field: only plan_request reads it")


def _sweep_level(fields: Mapping[str, object], prefix: str, known: Collection[str], findings: Findings) -> None:
    unknown: list[str] = []
    for key, value in fields.items():
        if key in WARNED:
            if is_set(value) and value is not False and value not in (0, "false", "False"):
                findings.warn(prefix + key, WARNED[key])
        elif key not in known and not key.startswith("Skim"):
            unknown.append(key)
    for key in unknown[:_MAX_UNKNOWN_NAMED]:
        close = difflib.get_close_matches(key[:60], known, n=1, cutoff=0.8)
        findings.warn(f"{prefix}{key}", "unknown field, not used" + (f" (did you mean {close[0]}?)" if close else ""))
    if len(unknown) > _MAX_UNKNOWN_NAMED:
        findings.warn(prefix.rstrip(".") or "document", f"{len(unknown) - _MAX_UNKNOWN_NAMED} more unknown fields, not used")


def misplaced_work(document: Mapping[str, object], first: StepView) -> Iterator[tuple[str, str]]:
    """(field, what to do) for the work of a chain's first part that stands at the top, where nothing reads it."""
    if first.kind is None:
        return
    for key in WORK:
        value = document.get(key)
        if is_set(value) and value != first.own.get(key):
            yield key, f"has no effect at the top of a {first.kind.request_type}; give it as {first.prefix}{key}"


def _check_misplaced(document: Mapping[str, object], first: StepView, findings: Findings) -> None:
    for key, text in misplaced_work(document, first):
        findings.problem(key, text)


def _check_later_step(step: StepView, findings: Findings) -> None:
    part = "task" if step.is_task else "step"
    if is_set(step.own.get("InputDataset")):
        findings.later(f"{step.prefix}InputDataset", f"an input dataset for a {part} after the first")
    if is_set(step.own.get("RequestNumEvents")):
        findings.warn(f"{step.prefix}RequestNumEvents", f"not used: the first {part} says how many events are made")
