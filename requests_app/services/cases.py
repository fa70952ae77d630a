"""Removing lost files: they and what holds pieces of the same work are invalidated, then the claim is cut (ADR 0021).

Here is what is asked for, in one transaction; ``requests_app.work.cutting`` cuts when all of it is INVALID outside. Until then
the pieces stay claimed, so that they are not planned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from dags_app.manifest import Manifest, ManifestProblem, read_manifest
from dags_app.models import WorkUnit, WorkUnitState
from dags_app.packs import files_of
from dags_app.payload.contract import layout
from dags_app.planning.closure import Closure, closure
from dags_app.services.claims import claims_of, pieces_of
from outputs_app.checks.cases import case_of, cases_shown, decided_refused, orphans_open
from outputs_app.effects import invalidation
from outputs_app.models import OPEN_CASE, CaseAction, CaseState, FindingKind, IntegrityCase, OutputDataset, OutputFile, Validity
from requests_app.models import AFTER_WORK, DONE, InputFile, RequestStatus
from requests_app.services.common import recorded_operation
from requests_app.services.recovering import keep_left_out, recover, recover_refused
from requests_app.services.release import held_after_work
from wms2.actions import AlreadyDone, Messages, applies
from wms2.errors import DocumentRefused, InvalidTransition
from wms2.runtime import clock
from wms2.web.formatting import counted

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class UnitLoss:
    """What a unit loses; ``manifest_sha256``: of the manifest that says so."""

    unit: WorkUnit
    manifest_sha256: str
    closure: Closure


def case_remove(*, case: IntegrityCase, actor: str, reason: str) -> None:
    """Have the case's files removed with all that holds pieces of the same work; then that work is planned again, also of a
    request that has completed.

    Of one that failed or was aborted the files are invalidated, and nothing is planned. What has been made of them gets cases of
    its own.

    Raises:
        InvalidTransition: something else is decided of it, it is no file of ours, or its manifest does not list its pieces.
        FieldRefused: a block with one of the files is not registered as a whole.
        StaleState: the unit has changed since its manifest was read.
    """
    request = case.request
    losses = [] if remove_refused(case) or request.is_at_end else _losses(case, {})
    with recorded_operation(request, actor, "case_remove", reason, case=case.name):
        case.refresh_from_db()
        if not applies(case, remove_refused(case)):
            return
        over = request.is_at_end
        if not over and (not losses or losses_changed(losses)):
            raise InvalidTransition(f"{case}: other files of its work are being removed, or were meanwhile; look again")
        if request.status in DONE and (why := recover_refused(request)):
            raise InvalidTransition(f"{case}: {why}")
        lfns = {lfn: by for loss in losses for lfn, by in loss.closure.files.items()} or {file.lfn: "" for file in _files(case)}
        orphans = files_made_from(lfns)
        removal_begin(case, lfns, losses, actor, reason)
        orphans_open(orphans, lfns=lfns.keys())
        if request.status in DONE:
            recover(request, actor, reason, files=len(lfns))
        case.refresh_from_db()


def removal_begin(case: IntegrityCase, lfns: Mapping[str, str], losses: Sequence[UnitLoss], actor: str, reason: str) -> None:
    """Ask for the files to be taken back, and write the pieces to be cut into the case, with which all others go; in the
    caller's transaction, which holds the request's row. Without ``losses`` nothing is cut.

    Args:
        lfns: file -> the one with which it shares pieces; empty for lost ones.
    """
    request, now = case.request, clock.now()
    after_work = request.status in (*AFTER_WORK, *DONE) or (request.status == RequestStatus.HELD and held_after_work(request))
    if losses and request.complete_early and after_work:
        keep_left_out(request, actor, reason)
    parts = invalidation.parts_of(workflow_id=case.block.workflow_id, lfns=lfns, blocks=())
    keys = invalidation.parts_ask(parts=parts, request_id=request.pk, request_epoch=request.epoch)
    units = [{"unit": loss.unit.pk, "pieces": loss.closure.pieces, "lumis": loss.closure.lumis} for loss in losses]
    decided: dict[str, Any] = {"action": CaseAction.REMOVED, "actor": actor, "reason": reason, "acted_at": now}
    decided |= {"state": CaseState.IN_PROGRESS} if losses else {"state": CaseState.REMOVED, "ended_at": now}
    IntegrityCase.objects.filter(pk=case.pk).update(**decided, cut={"units": units, "effects": keys} if losses else {})
    _draw_in(case, lfns, decided)


def remove_refused(case: IntegrityCase) -> str:
    """Why it cannot be removed, as far as its rows tell; empty if it can."""
    if case.action == CaseAction.REMOVED:
        return AlreadyDone("It is being removed, or was.")
    if case.file_id is None and case.name != case.block.dbs_block_name:
        return "It is no file of WMS2, so there is nothing to remove; find out whose it is."
    return "" if case.state == CaseState.NEW and not case.request.is_completing else decided_refused(case)


def removal_preview(cases: Sequence[IntegrityCase]) -> Messages:
    """What each removal would take with it."""
    manifests: dict[int, tuple[Manifest, str]] = {}
    rows = cases_shown().filter(pk__in=[case.pk for case in cases])
    return {case.pk: _removal(case, manifests) for case in rows}


def _removal(case: IntegrityCase, manifests: dict[int, tuple[Manifest, str]]) -> list[str]:
    if case.request.is_at_end:
        lfns = [file.lfn for file in _files(case)]
        words = [
            f"{counted(len(lfns), 'file')} INVALID in DBS and without rules.",
            f"Its request is {case.request.get_status_display()}: nothing is planned again, its datasets stay short.",
        ]
        return [*words, *_orphans_listed(files_made_from(lfns))]
    try:
        losses = _losses(case, manifests)
    except (InvalidTransition, DocumentRefused) as error:
        return [f"Not possible now: {error}"]
    words = []
    for loss in losses:
        files, drawn = loss.closure.files, sorted(lfn for lfn, by in loss.closure.files.items() if by)
        also = f", among them {len(drawn)} that hold pieces of the same work: {_some(drawn)}" if drawn else ""
        words.append(f"{loss.unit.name}: {counted(len(files), 'file')} INVALID in DBS and without rules{also}.")
        events = f", {loss.closure.events:,} events," if loss.closure.events else ""
        words.append(
            f"The work of {counted(loss.closure.lumis, 'lumi')}{events} is given back and planned again once they are INVALID."
        )
    if case.request.status in DONE:
        if why := recover_refused(case.request):
            return [f"Not possible now: {why}"]
        words.append(f"Its request is {case.request.get_status_display()}: it makes that again, and completes again.")
    lfns = [lfn for loss in losses for lfn in loss.closure.files]
    return [*words, *_orphans_listed(files_made_from(lfns))]


def _orphans_listed(orphans: Sequence[OutputFile]) -> list[str]:
    names = [file.lfn for file in orphans]
    return [f"{counted(len(names), 'file')} made from these get cases of their own: {_some(names)}."] if names else []


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")


def _files(case: IntegrityCase) -> list[OutputFile]:
    """Those that the case is about: one, or all of a block."""
    mine = {"pk": case.file_id} if case.file_id is not None else {"block": case.block_id}
    return list(uncut().filter(**mine).defer("lumis", "parents"))


def uncut() -> QuerySet[OutputFile]:
    """Files whose work has not been given back: valid ones, and those of which that is still to be done."""
    open_ = IntegrityCase.objects.filter(file=OuterRef("pk"), state__in=OPEN_CASE)
    return OutputFile.objects.filter(Q(validity=Validity.VALID) | Exists(open_))


def _losses(case: IntegrityCase, manifests: dict[int, tuple[Manifest, str]]) -> list[UnitLoss]:
    """By unit. Reads manifests that are not among those given: no transaction is open."""
    lost: dict[int, set[str]] = {}
    for file in _files(case):
        lost.setdefault(file.unit_id, set()).add(file.lfn)
    found = []
    for unit in WorkUnit.objects.filter(pk__in=lost, state=WorkUnitState.DONE).select_related("dag").order_by("pk"):
        kept = uncut().filter(unit=unit).values_list("lfn", flat=True)
        claims = pieces_of(claims_of([unit.pk])[unit.pk])
        try:
            if unit.pk not in manifests:
                manifests[unit.pk] = manifest_of_unit(unit)
            manifest, sha256 = manifests[unit.pk]
            found.append(UnitLoss(unit, sha256, closure(manifest, lost=lost[unit.pk], kept=set(kept), claims=claims)))
        except ManifestProblem as problem:
            raise InvalidTransition(f"{case}: which work it holds is not known: {problem}") from problem
    return found


def manifest_of_unit(unit: WorkUnit) -> tuple[Manifest, str]:
    """The manifest that was accounted, from its directory or the pack of that, and its checksum.

    Raises:
        ManifestProblem: it is not there, or is another by now.
    """
    with files_of(unit.dag.submit_dir, f"{unit.name}/{layout.MANIFEST_FILE}") as place:
        manifest, sha256 = read_manifest(place / unit.name / layout.MANIFEST_FILE)
    if sha256 != unit.manifest_sha256:
        raise ManifestProblem(f"{unit.name}: its manifest is no longer the one that was accounted")
    return manifest, sha256


def losses_changed(losses: Sequence[UnitLoss]) -> bool:
    """Whether a unit is no longer what was looked at: its files or claims, which another removal takes, are fewer."""
    manifests = {loss.unit.pk: loss.manifest_sha256 for loss in losses}
    files = {lfn for loss in losses for lfn in loss.closure.files}
    done = WorkUnit.objects.filter(pk__in=manifests, state=WorkUnitState.DONE).values_list("pk", "manifest_sha256")
    taken = IntegrityCase.objects.filter(name__in=files, state__in=OPEN_CASE, action=CaseAction.REMOVED)
    return dict(done) != manifests or uncut().filter(lfn__in=files).count() != len(files) or taken.exists()


def _draw_in(case: IntegrityCase, lfns: Mapping[str, str], decided: dict[str, Any]) -> None:
    """Every other file that goes is removed with the case: one that is open already, or a new one that says why."""
    with_it = {"with": case.pk} if decided["state"] == CaseState.IN_PROGRESS else {}
    others = IntegrityCase.objects.filter(name__in=lfns, state__in=OPEN_CASE).exclude(pk=case.pk)
    there = set(others.values_list("name", flat=True)) | {case.name}
    others.update(**decided, cut=with_it)
    files = OutputFile.objects.filter(lfn__in=lfns.keys() - there).select_related("unit", "block__workflow__request")
    rows = []
    for file in files.order_by("lfn"):
        row = case_of(file, FindingKind.DRAWN_IN, f"holds pieces of the same work as {lfns[file.lfn] or case.name}")
        for name, value in {**decided, "cut": with_it}.items():
            setattr(row, name, value)
        rows.append(row)
    IntegrityCase.objects.bulk_create(rows)


def files_made_from(lfns: Collection[str]) -> list[OutputFile]:
    """Valid files that were made from any of these, in the same workflows and in those that read their datasets; themselves not
    among them."""
    of = OutputFile.objects.filter(lfn__in=lfns)
    names = list(OutputDataset.objects.filter(pk__in=of.values("dataset")).values_list("name", flat=True))
    readers = InputFile.objects.filter(workflow__input_dataset__in=names, lfn__in=lfns)
    workflows = {*of.values_list("block__workflow", flat=True), *readers.values_list("workflow", flat=True)}
    rows = OutputFile.objects.filter(block__workflow__in=workflows, validity=Validity.VALID, parents__has_any_keys=list(lfns))
    return list(rows.exclude(lfn__in=lfns).select_related("unit", "block__workflow__request").order_by("lfn"))
