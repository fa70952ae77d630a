"""Files that were lost, over any number of requests: what is concerned, and having it made again (ADR 0021).

A file takes with it what holds pieces of the same work, and everything that was made from any of these, in other requests too.
``lost_files_plan`` only looks; ``lost_files_make_again`` asks for all of it in one transaction, so that nothing is left half
asked for. Owns neither the cutting of claims (``work.cutting``) nor the way back of a request (``recovering``).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from django.db import transaction
from django.db.models import QuerySet

from dags_app.manifest import Manifest, ManifestProblem
from dags_app.models import WorkUnit, WorkUnitState
from dags_app.planning.closure import Piece, closure
from dags_app.services.claims import claims_of, pieces_of
from outputs_app.checks.cases import case_of, orphans_open
from outputs_app.effects.invalidation import block_refused
from outputs_app.models import OPEN_CASE, CaseAction, FindingKind, IntegrityCase, OutputFile, ProcessingBlock, Validity
from requests_app.models import DONE, Request, RequestStatus
from requests_app.services.cases import UnitLoss, files_made_from, losses_changed, manifest_of_unit, removal_begin, uncut
from requests_app.services.common import recorded_operation
from requests_app.services.recovering import recover, recover_refused
from wms2.errors import InvalidTransition, StaleState
from wms2.runtime.grouping import grouped

#: Names in one question: what a body has room for.
MOST_FILES = 10_000
#: Of a request in one of them nothing is planned any more, or not yet.
_NOTHING_PLANNED = (RequestStatus.NEW, RequestStatus.SUBMITTED, RequestStatus.CLEANING)


@dataclass(frozen=True, slots=True)
class LostDataset:
    """Files of one dataset that go: lost ones, ones made from files that go, ones that hold pieces of the same work."""

    name: str
    tier: str
    lost: int
    made_from_lost: int
    drawn_in: int


@dataclass(frozen=True, slots=True)
class RequestLoss:
    """What a request loses and makes again. ``files``: LFN -> why it goes, empty for a lost one."""

    request: Request
    losses: tuple[UnitLoss, ...]
    files: Mapping[str, str]
    made_from: frozenset[str]
    datasets: tuple[LostDataset, ...]

    @property
    def units(self) -> int:
        """Work units of which pieces are made again."""
        return len(self.losses)

    @property
    def lumis(self) -> int:
        """That are made again."""
        return sum(loss.closure.lumis for loss in self.losses)

    @property
    def events(self) -> int:
        """Of the input, or generated; 0 where work is split by lumi."""
        return sum(loss.closure.events for loss in self.losses)

    @property
    def then(self) -> str:
        """What becomes of the request."""
        status = self.request.get_status_display()
        if self.request.status in DONE:
            return f"it is {status}: it makes this again, and completes again"
        return f"it is {status}: this is made again before it completes"


@dataclass(frozen=True, slots=True)
class LostPlan:
    """What is concerned. ``already``: invalid, or being made again; ``refused``: cannot be made again now; ``left``: made from
    files that go, and for an operator to decide of; each LFN -> why. ``confirm`` stands for all that would be done, and is
    another one as soon as that is something else; empty when there is nothing to do."""

    confirm: str
    requests: tuple[RequestLoss, ...]
    unknown: tuple[str, ...]
    already: Mapping[str, str]
    refused: Mapping[str, str]
    left: Mapping[str, str]


def lost_files_plan(lfns: Iterable[str]) -> LostPlan:
    """What having these files made again would mean, as everything stands now. Reads manifests: no transaction is open."""
    return _Search(sorted(set(lfns))).plan()


def lost_files_make_again(*, lfns: Iterable[str], confirm: str, actor: str, reason: str) -> LostPlan:
    """Have these files made again, with all that goes with them; returns what was asked for. Asked for twice it is done once.

    Args:
        confirm: of the plan that was looked at.

    Raises:
        InvalidTransition: none of them can be made again.
        StaleState: what is concerned is not what was looked at any more; nothing was done.
    """
    plan = lost_files_plan(lfns)
    if not plan.requests:
        if plan.already:
            return plan
        why = next(iter(plan.refused.values()), "WMS2 has made none of them")
        raise InvalidTransition(f"nothing can be made again: {why}")
    if confirm != plan.confirm:
        raise StaleState("what is concerned is not what was confirmed: look at the preview again")
    with transaction.atomic():
        of_all = [each.request.pk for each in plan.requests]
        list(Request.objects.select_for_update(no_key=True).filter(pk__in=of_all).order_by("pk").values_list("pk"))
        orphans = list(OutputFile.objects.filter(lfn__in=plan.left).select_related("unit", "block__workflow__request"))
        for each in plan.requests:
            _begin(each, actor, reason)
        orphans_open(orphans, lfns={lfn for each in plan.requests for lfn in each.files})
    return plan


def _begin(each: RequestLoss, actor: str, reason: str) -> None:
    request, planned = each.request, each.request.status
    lost = sorted(lfn for lfn, why in each.files.items() if not why)
    with recorded_operation(request, actor, "lost_files_make_again", reason, files=lost, with_them=len(each.files) - len(lost)):
        if request.status != planned or losses_changed(each.losses):
            raise StaleState(f"{request.request_name} is not as it was in the preview: look at it again")
        if request.status in DONE and (why := recover_refused(request)):
            raise StaleState(f"{request.request_name}: {why}")
        files = OutputFile.objects.filter(lfn__in=each.files).select_related("unit", "block__workflow__request")
        rows = [case_of(file, *_finding(each, file.lfn, actor, reason)) for file in files.order_by("lfn")]
        IntegrityCase.objects.bulk_create(rows, ignore_conflicts=True)
        lead = IntegrityCase.objects.filter(name__in=each.files, state__in=OPEN_CASE).order_by("name")[0]
        removal_begin(lead, each.files, each.losses, actor, reason)
        if request.status in DONE:
            recover(request, actor, reason, files=len(each.files))


def _finding(each: RequestLoss, lfn: str, actor: str, reason: str) -> tuple[FindingKind, str]:
    why = each.files[lfn]
    if not why:
        return FindingKind.MISSING_REPLICA, f"lost, says {actor}: {reason}"
    return (FindingKind.PARENT_MISSING if lfn in each.made_from else FindingKind.DRAWN_IN), why


@dataclass(slots=True)
class _Found:
    """Of one work unit: its manifest, what is lost of it, and what goes with that."""

    unit: WorkUnit
    manifest: Manifest
    sha256: str
    lost: dict[str, str] = field(default_factory=dict)
    loss: UnitLoss | None = None


class _Search:
    """From lost files to all that go with them, until nothing more is found."""

    def __init__(self, lfns: list[str]) -> None:
        self.lfns = lfns
        self.units: dict[int, _Found] = {}
        self.gone: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.already: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self.request_refused, self.block_refused = cache(_refused), cache(_block_refused)  # each once in a search

    def plan(self) -> LostPlan:
        files = {file.lfn: file for file in _files().filter(lfn__in=self.lfns)}
        taken = IntegrityCase.objects.filter(name__in=self.lfns, state__in=OPEN_CASE, action=CaseAction.REMOVED)
        being_made = set(taken.values_list("name", flat=True))
        for lfn, file in files.items():
            if lfn in being_made:
                self.already[lfn] = "it is being made again"
            elif file.validity != Validity.VALID:
                self.already[lfn] = "it is invalid: taken back, or made again under another name"
        found = self._grow({file: "" for lfn, file in files.items() if lfn not in self.already}, self.refused)
        while found:
            orphans = {f: f"it was made from {min(set(f.parents) & self.gone.keys())}" for f in self._orphans(found)}
            found = self._grow(orphans, self.left)
        left = {lfn: why for lfn, why in self.left.items() if lfn not in self.gone}
        unknown = tuple(lfn for lfn in self.lfns if lfn not in files)
        requests = self._by_request()
        return LostPlan(_confirm(requests, left), requests, unknown, self.already, self.refused, left)

    def _grow(self, files: Mapping[OutputFile, str], refused: dict[str, str]) -> list[str]:
        """Take these in, each with why it goes; returns the LFNs that go and did not before."""
        touched = grouped(files, lambda file: file.unit_id)
        units = {
            unit.pk: unit for unit in WorkUnit.objects.filter(pk__in=touched, state=WorkUnitState.DONE).select_related("dag")
        }
        claims, kept = claims_of(touched), defaultdict[int, dict[str, uuid.UUID]](dict)
        for unit_id, lfn, block in uncut().filter(unit__in=touched).values_list("unit", "lfn", "block"):
            kept[unit_id][lfn] = block
        taken = IntegrityCase.objects.filter(file__unit__in=touched, state__in=OPEN_CASE, action=CaseAction.REMOVED)
        being_made = set(taken.values_list("name", flat=True))
        new: list[str] = []
        for pk, some in touched.items():
            lost = {file.lfn: files[file] for file in some}
            try:
                self._check(some[0].block.workflow.request, units.get(pk))
                new += self._take(units[pk], lost, kept[pk], pieces_of(claims[pk]), being_made)
            except (InvalidTransition, ManifestProblem) as error:
                refused.update(dict.fromkeys(lost, str(error)))
        return new

    def _check(self, request: Request, unit: WorkUnit | None) -> None:
        if why := self.request_refused(request):
            raise InvalidTransition(why)
        if unit is None:
            raise InvalidTransition("its work unit is not done")

    def _take(
        self, unit: WorkUnit, lost: dict[str, str], kept: Mapping[str, uuid.UUID], claims: Sequence[Piece], being_made: set[str]
    ) -> list[str]:
        found = self.units.get(unit.pk) or _Found(unit, *manifest_of_unit(unit))
        lost = {**found.lost, **lost}
        goes = closure(found.manifest, lost=lost.keys(), kept=set(kept), claims=claims)
        if taken := sorted(being_made & goes.files.keys()):
            raise InvalidTransition(f"files that hold pieces of the same work are being made again, e.g. {taken[0]}")
        for block in {kept[lfn] for lfn in goes.files}:
            if why := self.block_refused(block):
                raise InvalidTransition(why)
        found.lost, found.loss = lost, UnitLoss(unit, found.sha256, goes)
        self.units[unit.pk] = found
        new = [lfn for lfn in goes.files if lfn not in self.gone]
        for lfn in new:
            self.gone[lfn] = lost.get(lfn, f"it holds pieces of the same work as {goes.files[lfn]}")
        return new

    def _orphans(self, lfns: Collection[str]) -> list[OutputFile]:
        """Made from these; not among what was found before."""
        made = files_made_from(lfns)
        taken = IntegrityCase.objects.filter(name__in=[f.lfn for f in made], state__in=OPEN_CASE, action=CaseAction.REMOVED)
        known = {*self.gone, *self.left, *taken.values_list("name", flat=True)}
        return [file for file in made if file.lfn not in known]

    def _by_request(self) -> tuple[RequestLoss, ...]:
        by_workflow = grouped(self.units.values(), lambda found: found.unit.workflow_id)
        rows = Request.objects.select_related("workflow").filter(workflow__in=list(by_workflow))
        return tuple(self._request_loss(row, by_workflow[row.workflow.pk]) for row in rows.order_by("created_at", "request_name"))

    def _request_loss(self, request: Request, found: list[_Found]) -> RequestLoss:
        losses = tuple(each.loss for each in found if each.loss is not None)
        files = {lfn: self.gone[lfn] for loss in losses for lfn in loss.closure.files}
        asked = set(self.lfns)
        made_from = frozenset(lfn for each in found for lfn, why in each.lost.items() if why)
        files |= dict.fromkeys(files.keys() & asked, "")
        rows = OutputFile.objects.filter(lfn__in=files).values_list("dataset__name", "dataset__tier", "lfn")
        counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for name, tier, lfn in rows:
            counts[name, tier]["lost" if not files[lfn] else "made" if lfn in made_from else "drawn"] += 1
        datasets = (LostDataset(*key, each["lost"], each["made"], each["drawn"]) for key, each in sorted(counts.items()))
        return RequestLoss(request, losses, files, made_from, tuple(datasets))


def _confirm(requests: Sequence[RequestLoss], left: Collection[str]) -> str:
    done = [
        [each.request.request_name, each.request.status, sorted(each.files), sorted(loss.closure.pieces for loss in each.losses)]
        for each in requests
    ]
    return hashlib.sha256(json.dumps([done, sorted(left)]).encode()).hexdigest()[:32] if done else ""


def _files() -> QuerySet[OutputFile]:
    return OutputFile.objects.select_related("block__workflow__request").defer("lumis", "block__failure_context")


def _refused(request: Request) -> str:
    """Why nothing of the request can be made again now; empty if it can."""
    status = request.get_status_display()
    if request.is_at_end or request.status in _NOTHING_PLANNED:
        return f"{request.request_name} is {status}: nothing of it is planned again"
    if request.is_completing:
        return f"{request.request_name} is {status}, about to complete: ask again when it has"
    return f"{request.request_name}: {why}" if request.status in DONE and (why := recover_refused(request)) else ""


def _block_refused(pk: uuid.UUID) -> str:
    block = ProcessingBlock.objects.get(pk=pk)
    why = block_refused(block)
    return f"{block.dbs_block_name} {why}" if why else ""
