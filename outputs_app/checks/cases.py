"""Integrity cases: opened for files that are not what they should be, and what an operator decides of them (ADR 0021).

A block with an open case is not validated. What is said to be repaired is looked at again: only then the case ends, or a person
is needed again. Removing a file cuts its unit's claim: ``requests_app.services.cases``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import structlog
from django.db.models import Count, Exists, F, Min, OuterRef, Q, QuerySet

from outputs_app.checks.reconciliation.services import registrations_again, repair_refused
from outputs_app.checks.validation import FileFinding, validation_again
from outputs_app.checks.validation.process import NOT_WANTED
from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    BlockValidation,
    CaseAction,
    CaseState,
    Drift,
    DriftKind,
    Effect,
    EffectKind,
    FindingKind,
    IntegrityCase,
    OutputFile,
    ProcessingBlock,
    StorageCheck,
)
from sites_app.selectors import sites_by_rse
from wms2.audit import audited
from wms2.errors import InvalidTransition
from wms2.runtime import clock
from wms2.runtime.columns import rows_with
from wms2.runtime.due import mark_due
from wms2.runtime.grouping import grouped
from wms2.web.formatting import counted, duration

#: How often each site with open cases is logged and counted as an alert.
_REMINDER_HOURS = 24.0

log = structlog.get_logger(__name__)
#: The differences whose repairs make again what is missing.
_REPAIRS: dict[FindingKind, tuple[DriftKind, ...]] = {
    FindingKind.MISSING_REPLICA: (DriftKind.REPLICA_MISSING,),
    FindingKind.NOT_IN_CATALOGUE: (DriftKind.RUCIO_BLOCK_MISSING, DriftKind.DBS_BLOCK_MISSING),
    FindingKind.UNPROTECTED: (DriftKind.RULE_GONE,),
}


def cases_shown() -> QuerySet[IntegrityCase]:
    """Cases with the names of their requests and blocks."""
    names = ("block__dbs_block_name", "block__dataset_name", "block__workflow_id")
    return rows_with(IntegrityCase, "request__request_name", "request__status", *names)


def cases_open_counts(*by: str) -> list[tuple[Any, ...]]:
    """Values of these fields, how many open cases have them, since when the oldest is open."""
    rows = IntegrityCase.objects.filter(state__in=OPEN_CASE).order_by(*by)
    return list(rows.values_list(*by).annotate(number=Count("id"), since=Min("created_at")))


def cases_open(block: ProcessingBlock, findings: Iterable[FileFinding]) -> int:
    """A case for each file that something was found of, in the caller's transaction; returns of how many.

    One that waits for a person gets what was found now; one that is being removed stays as it is. One that was said to be
    repaired is not, if this was asked for afterwards, and waits for a person again. What was accepted with the same findings is
    not opened again.
    """
    by_name = grouped(findings, lambda finding: finding.name)
    rows = IntegrityCase.objects.filter(block=block, name__in=by_name)
    for case in rows.filter(state=CaseState.RESOLVED, action=CaseAction.ACCEPTED).order_by("id"):
        if _known(by_name.get(case.name, ()), case.findings):
            by_name.pop(case.name, None)
    if not by_name:
        return 0
    sites, validations = sites_by_rse(), BlockValidation.objects.values_list("generation", "asked_at")
    generation, asked_at = validations.get(block=block)
    seen_now = {"generation": generation, "at": clock.now().isoformat()}
    known = {case.name: case for case in IntegrityCase.objects.filter(name__in=by_name, state__in=OPEN_CASE).select_for_update()}
    files = {file.lfn: file for file in OutputFile.objects.filter(block=block, lfn__in=by_name).only("lfn", "rse")}
    for name, found in by_name.items():
        file = files.get(name)
        case = known.get(name) or IntegrityCase(
            request=block.workflow.request, block=block, file=file, name=name, rse=file.rse if file is not None else ""
        )
        case.site = case.site or next(iter(sites.get(case.rse, ())), "")
        if case.action == CaseAction.REMOVED or (case.acted_at is not None and asked_at <= case.acted_at):
            continue
        case.state, case.action = CaseState.NEW, ""
        newer = {finding.prognosis for finding in found}
        kept = [each for each in case.findings if each.get("generation") == generation and each["prognosis"] not in newer]
        case.evidence = [*kept, *(_as_evidence(each) | seen_now for each in found)]
        known_words = {each["prognosis"] for each in case.evidence} & set(FindingKind.values)  # a later release may have more
        case.prognosis = min(known_words, key=FindingKind.values.index)  # the worst
        case.save()
    BlockValidation.objects.filter(block=block).update(validated_at=None)
    return len(by_name)


def _as_evidence(finding: FileFinding) -> dict[str, Any]:
    return {"prognosis": finding.prognosis.value, "expected": finding.expected, "found": finding.found}


def _known(found: Collection[FileFinding], evidence: Collection[dict[str, Any]]) -> bool:
    """Whether all of it was seen before."""
    return all(any(_as_evidence(each).items() <= one.items() for one in evidence) for each in found)


def decided_refused(case: IntegrityCase) -> str:
    """Why nothing is to be decided of it now, or any more; empty if there is."""
    if case.request.is_completing:
        return "Its request is being completed: it would not be looked at again before that. Decide when it is."
    if case.state == CaseState.NEW and case.action != CaseAction.REMOVED:
        invalid = case.file is not None and not case.file.is_valid
        return "It is INVALID already: remove it, so that its work is done again." if invalid else ""
    return f"It is {case.get_state_display().lower()}: {case.get_action_display()}."


def register_refused(case: IntegrityCase) -> str:
    """Why nothing can be made again that helps; empty if it can."""
    if why := decided_refused(case):
        return why
    if case.file_id is not None and case.prognosis == FindingKind.NOT_IN_CATALOGUE:
        return "A block is registered once and closed: a file that it lacks cannot be added. Remove it; it is made again."
    drifts = _drifts(case)
    if not drifts:
        return "Nothing that WMS2 could register again would change that."
    return next(filter(None, map(repair_refused, drifts)), "")


def case_decide(*, case: IntegrityCase, action: CaseAction, actor: str, reason: str) -> None:
    """RECOVERED: the file is whole again at its storage. ACCEPTED: it may stay as it is; the same finding opens no further case.
    REGISTERED: the registrations that should have made what is missing are made again.

    Raises:
        InvalidTransition: a decision on it was made already, or registering again cannot help.
    """
    why = register_refused(case) if action == CaseAction.REGISTERED else decided_refused(case)
    with audited(
        actor=actor, action=f"case_{action}", target=case.name, target_type="case", reason=reason, prognosis=case.prognosis
    ):
        now, over = clock.now(), action == CaseAction.ACCEPTED or case.request.is_over
        decided = {"action": action, "actor": actor, "reason": reason, "acted_at": now}
        ends = {"state": CaseState.RESOLVED, "ended_at": now} if over else {"state": CaseState.IN_PROGRESS}
        mine = IntegrityCase.objects.filter(pk=case.pk, state=CaseState.NEW).exclude(action=CaseAction.REMOVED)
        if why or not mine.update(**decided, **ends):
            case.refresh_from_db()
            raise InvalidTransition(f"{case}: {why or decided_refused(case)}")
        for drift in _drifts(case) if action == CaseAction.REGISTERED else ():
            registrations_again(drift)
        case.refresh_from_db()
        mark_due([case.request_id], "case decided")


def repaired_check(request_id: uuid.UUID) -> None:
    """What was said to be repaired is validated again as soon as nothing is under way for its block; the case is over when that
    has found nothing, or its block is not wanted any more. In the caller's transaction."""
    owed = Effect.objects.filter(block=OuterRef("block"), state__in=OPEN_EFFECT)
    owed = owed.exclude(kind__in=(EffectKind.BLOCK_VALIDATE, EffectKind.RUCIO_UNPROTECT))  # which repairs nothing
    checks = StorageCheck.objects.filter(validation=OuterRef("block"), done_at__isnull=True)
    repaired = IntegrityCase.objects.filter(
        ~Exists(owed), request=request_id, state=CaseState.IN_PROGRESS, action__in=(CaseAction.RECOVERED, CaseAction.REGISTERED)
    )
    validated = Q(~Exists(checks), block__validation__asked_at__gt=F("acted_at"), block__validation__catalogues_at__isnull=False)
    over = repaired.filter(validated | Q(block__status__in=NOT_WANTED)).values_list("pk", flat=True)
    IntegrityCase.objects.filter(pk__in=list(over)).update(state=CaseState.RESOLVED, ended_at=clock.now())
    again = repaired.filter(block__validation__asked_at__lte=F("acted_at"))
    validation_again(set(again.values_list("block_id", flat=True)))


def _drifts(case: IntegrityCase) -> list[Drift]:
    """The differences that the case may be, none of them a row."""
    place = {"request": case.request, "dataset": case.block.dataset, "block": case.block}
    name = {"name": case.name, "rule_id": ""}
    return [Drift(kind=kind, **name, **place) for kind in _REPAIRS.get(FindingKind(case.prognosis), ())]


def cases_end(request_id: uuid.UUID) -> None:
    """The request has ended: what was begun of its cases is neither cut nor looked at any more. In the caller's transaction."""
    rows, now = IntegrityCase.objects.filter(request=request_id, state=CaseState.IN_PROGRESS), clock.now()
    rows.filter(action=CaseAction.REMOVED).update(state=CaseState.REMOVED, ended_at=now)
    rows.update(state=CaseState.RESOLVED, ended_at=now)


def orphans_open(files: Iterable[OutputFile], *, lfns: Collection[str]) -> None:
    """A case for each file that was made from any of those that are gone; one that is open stays as it is."""
    rows = [
        case_of(file, FindingKind.PARENT_MISSING, f"made from {min(set(file.parents) & set(lfns))}, which is removed")
        for file in files
    ]
    IntegrityCase.objects.bulk_create(rows, ignore_conflicts=True)
    mark_due({row.request_id for row in rows}, "parent removed")


def case_of(file: OutputFile, prognosis: FindingKind, found: str) -> IntegrityCase:
    """A new one, not yet a row."""
    evidence = [{"prognosis": prognosis, "expected": "", "found": found, "generation": 0, "at": clock.now().isoformat()}]
    request = file.block.workflow.request
    return IntegrityCase(
        request=request, block=file.block, file=file, name=file.lfn, rse=file.rse, site=file.unit.site, prognosis=prognosis,
        evidence=evidence,
    )  # fmt: skip


def cases_late() -> QuerySet[IntegrityCase]:
    """Open ones that have been open, or were last reported, for as long as is between two reminders."""
    before = clock.now() - timedelta(hours=_REMINDER_HOURS)
    rows = IntegrityCase.objects.filter(state__in=OPEN_CASE)
    return rows.filter(Q(reminded_at__lte=before) | Q(reminded_at=None, created_at__lte=before))


def cases_remind() -> dict[str, str]:
    """What there is to say of each site with late cases: how many are open there, how old; site -> words."""
    now, due = clock.now(), set(cases_late().order_by().values_list("site", flat=True).distinct())
    words: dict[str, str] = {}
    for site, rows in groupby(cases_open_counts("site", "prognosis") if due else (), itemgetter(0)):
        if site in due:
            found = list(rows)
            prognoses = {prognosis: number for _, prognosis, number, _ in found}
            number = counted(sum(prognoses.values()), "integrity case")
            oldest = duration((now - min(since for *_, since in found)).total_seconds())
            log.warning("integrity cases wait", site=site or "none", cases=number, prognoses=prognoses, oldest=oldest)
            words[site] = f"{number} at {site or 'no site'}, the oldest open for {oldest}"
    return words


def case_reminded(*, site: str, request_id: uuid.UUID) -> bool:
    """Its cases there are reported, in the caller's transaction; False if another has just done it."""
    if not cases_late().filter(site=site, request=request_id).update(reminded_at=clock.now()):
        return False
    IntegrityCase.objects.filter(state__in=OPEN_CASE, site=site, request=request_id).update(reminded_at=clock.now())
    return True
