"""The account of a request's work: planned + done + attempted + abandoned + excluded + inherited + left = all
(docs/design/model.md, Ledger).

Every number is counted from claims and exclusions, never kept. For a generation the unit is events; with input it is files, and
events beside them; for input split by lumi it is lumis (``lumi_account.py``), with files and estimated events beside them.
Checked at each transition that rests on it; a violation holds the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import BigIntegerField, BooleanField, Case, Count, Expression, F, Min, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce

from dags_app.models import WorkUnitClaim, WorkUnitState
from dags_app.planning import lumis
from dags_app.planning.specs import ExclusionKind, WorkflowSpec
from requests_app.models import BY_BYTES, InputFile, Workflow
from requests_app.work.lumi_account import count, lumis_left
from requests_app.work.spec import spec_of
from wms2.errors import LedgerViolation

_PLANNED = (WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the work of one request stands. ``lost_events`` are numbers that failed generation took, never made again.

    Lumis are counted only where they are the unit of work (``by_lumi``): wanted ones, each once in however many files it
    lies; ``refused_lumis`` are beside, not among, ``excluded_lumis``. There events are estimates, files are done when all
    their wanted lumis are, and neither decides anything. Inherited work is of the request that this one was derived from; of a
    generation it is beside ``all_events``. What a derived request has taken over is excluded (ADR 0024).
    """

    all_events: int = 0
    done_events: int = 0
    planned_events: int = 0
    excluded_events: int = 0
    left_events: int = 0
    lost_events: int = 0
    all_files: int = 0
    done_files: int = 0
    planned_files: int = 0
    attempted_files: int = 0
    excluded_files: int = 0
    left_files: int = 0
    taken_numbers: int = 0  # generation: how far the event offset has moved
    by_lumi: bool = False
    all_lumis: int = 0
    done_lumis: int = 0
    planned_lumis: int = 0
    attempted_lumis: int = 0
    excluded_lumis: int = 0
    refused_lumis: int = 0
    left_lumis: int = 0
    inherited_events: int = 0
    inherited_files: int = 0
    inherited_lumis: int = 0

    @property
    def work_left(self) -> bool:
        """Whether a further round has anything to plan."""
        if self.by_lumi:
            return self.left_lumis + self.attempted_lumis > 0
        return self.left_events + self.left_files + self.attempted_files > 0

    @property
    def work_done(self) -> bool:
        """Whether anything is done or being done."""
        return self.done_events + self.done_files + self.done_lumis + self.planned_files + self.planned_lumis > 0

    @property
    def made_events(self) -> int:
        """Generation: events that were planned, lost ones with them. Numbers may leave out those of a derived request."""
        return self.done_events + self.planned_events + self.lost_events

    def as_dict(self) -> dict[str, Any]:
        """The numbers, for evidence and the API."""
        return {name: number for name, number in asdict(self).items() if name != "by_lumi"}

    def summary(self) -> str:
        """One line for people."""
        if self.by_lumi:
            refused = f"{self.refused_lumis} refused, " if self.refused_lumis else ""
            inherited = f"{self.inherited_lumis} inherited, " if self.inherited_lumis else ""
            return (
                f"{self.done_lumis} lumis done, {self.planned_lumis} planned, {self.attempted_lumis} attempted, "
                f"{self.excluded_lumis} excluded, {refused}{inherited}{self.left_lumis} left of {self.all_lumis}"
            )
        if self.all_files:
            inherited = f"{self.inherited_files} inherited, " if self.inherited_files else ""
            return (
                f"{self.done_files} files done, {self.planned_files} planned, {self.attempted_files} attempted, "
                f"{self.excluded_files} excluded, {inherited}{self.left_files} left of {self.all_files}"
            )
        line = f"{self.done_events} events done, {self.planned_events} planned, {self.left_events} left of {self.all_events}"
        return line + (f"; {self.inherited_events} more are inherited" if self.inherited_events else "")


def ledger_of(workflow: Workflow, *, whole: bool = True) -> Ledger:
    """Count. Not ``whole``: only what decides; files and events beside lumis, which cost a look at each file, are left zero."""
    spec = spec_of(workflow)
    if spec.input is None:
        return _of_generation(workflow, spec)
    return Ledger(by_lumi=True, **count(workflow, whole)) if spec.splitting.algorithm.by_lumi else _of_input(workflow)


def ledger_check(ledger: Ledger) -> Ledger:
    """Conservation; the same ledger.

    Raises:
        LedgerViolation: work was lost, doubled or invented; says which sum does not hold.
    """
    if ledger.by_lumi:
        parts = ledger.done_lumis + ledger.planned_lumis + ledger.attempted_lumis + ledger.left_lumis
        parts += ledger.excluded_lumis + ledger.refused_lumis + ledger.inherited_lumis
        if parts != ledger.all_lumis:
            raise LedgerViolation(
                f"lumis do not add up: {parts} accounted for, {ledger.all_lumis} wanted of the input ({ledger.summary()})"
            )
    elif ledger.all_files:
        parts = ledger.done_files + ledger.planned_files + ledger.attempted_files + ledger.left_files
        parts += ledger.excluded_files + ledger.inherited_files
        if parts != ledger.all_files:
            raise LedgerViolation(
                f"files do not add up: {parts} accounted for, {ledger.all_files} in the input ({ledger.summary()})"
            )
        events = ledger.done_events + ledger.planned_events + ledger.excluded_events + ledger.inherited_events
        events += ledger.left_events
        if events != ledger.all_events:
            raise LedgerViolation(f"events do not add up: {events} accounted for, {ledger.all_events} in the input")
    elif ledger.made_events > ledger.taken_numbers:
        raise LedgerViolation(
            f"{ledger.made_events} events are claimed, but only {ledger.taken_numbers} event numbers were taken"
        )
    elif ledger.done_events + ledger.planned_events > ledger.all_events:
        raise LedgerViolation(f"{ledger.summary()}: more is planned and done than was asked for")
    return ledger


def files_left(workflow: Workflow) -> QuerySet[Any]:
    """Files with events that nothing claims, fresh ones before those of failed units (error-handling 5.2)."""
    return files_claimed(workflow).filter(excluded_at__isnull=True, unclaimed__gt=0).order_by("tried", BY_BYTES)


def files_with_work(
    workflow: Workflow, spec: WorkflowSpec, fields: Sequence[str], among: QuerySet[InputFile] | None = None
) -> Iterator[Sequence[Any]]:
    """Fields of the files with work left, of those ``among`` if given, which are not excluded; streamed."""
    if not spec.splitting.algorithm.by_lumi:
        files = files_left(workflow)
        some = files if among is None else files.filter(pk__in=among.values("pk"))
        yield from some.values_list(*fields).iterator(chunk_size=2000)
        return
    left = lumis_left(workflow)
    todo = lumis.union(left.fresh, left.tried)
    files = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True) if among is None else among
    for held, *values in files.values_list("lumis", *fields).iterator(chunk_size=2000):
        if lumis.intersect(lumis.from_json(held), todo):
            yield values


def _of_generation(workflow: Workflow, spec: WorkflowSpec) -> Ledger:
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, kind=WorkUnitClaim.KIND_GENERATED)
    sums = claims.aggregate(
        done=Sum("events", filter=Q(live=True, unit__state=WorkUnitState.DONE), default=0),
        planned=Sum("events", filter=Q(live=True, unit__state__in=_PLANNED), default=0),
        lost=Sum("events", filter=Q(live=False), default=0),
    )
    first = spec.generation.first_event if spec.generation else 1
    return Ledger(
        all_events=workflow.requested_events,
        done_events=sums["done"],
        planned_events=sums["planned"],
        left_events=max(0, workflow.requested_events - sums["done"] - sums["planned"]),
        lost_events=sums["lost"],
        taken_numbers=workflow.next_first_event - first,
        inherited_events=workflow.inherited_events,
    )


def files_claimed(workflow: Workflow) -> QuerySet[Any]:
    """Input files with what is claimed of each. A file without events counts as one, so that its lumis are work too."""
    share = Case(When(events=0, then=Value(1)), default=F("claims__events"), output_field=BigIntegerField())

    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow).exists()  # before the first round there is nothing to join

    def claimed(*states: WorkUnitState) -> Expression:
        if not claims:
            return Value(0, output_field=BigIntegerField())
        of_live = Q(claims__live=True, claims__unit__state__in=states)
        return Coalesce(Sum(share, filter=of_live), Value(0), output_field=BigIntegerField())

    return (
        InputFile.objects.filter(workflow=workflow)
        .annotate(
            weight=Case(When(events=0, then=Value(1)), default=F("events"), output_field=BigIntegerField()),
            asked=Coalesce(F("wanted_events"), F("events"), output_field=BigIntegerField()),
            done=claimed(WorkUnitState.DONE),
            planned=claimed(*_PLANNED),
            failed_claims=Count("claims", filter=Q(claims__live=False)) if claims else Value(0),
        )
        .annotate(
            unclaimed=F("weight") - F("done") - F("planned"),
            # a mask cuts only files that are claimed whole, so that nothing is rounded
            done_asked=F("done") * F("asked") / F("weight"),
            planned_asked=F("planned") * F("asked") / F("weight"),
            tried=Case(When(failed_claims__gt=0, then=Value(True)), default=Value(False), output_field=BooleanField()),
        )
    )


def _of_input(workflow: Workflow) -> Ledger:
    kept, inherited = Q(excluded_at__isnull=True), Q(excluded_kind=ExclusionKind.INHERITED)
    out = ~kept & ~inherited
    real = kept & ~Q(events=0)

    def events(field: str, condition: Q) -> Coalesce:
        return Coalesce(Sum(field, filter=condition), Value(0), output_field=BigIntegerField())

    files = files_claimed(workflow).annotate(left_asked=F("unclaimed") * F("asked") / F("weight"))
    sums = files.aggregate(
        all_events=events("asked", Q()),
        done_events=events("done_asked", real),
        planned_events=events("planned_asked", real),
        excluded_events=events("asked", out),
        inherited_events=events("asked", inherited),
        left_events=events("left_asked", real),
        all_files=Count("pk"),
        done_files=Count("pk", filter=kept & Q(done__gte=F("weight"))),
        planned_files=Count("pk", filter=kept & Q(unclaimed=0, planned__gt=0)),
        attempted_files=Count("pk", filter=kept & Q(unclaimed__gt=0, tried=True)),
        excluded_files=Count("pk", filter=out),
        inherited_files=Count("pk", filter=inherited),
        left_files=Count("pk", filter=kept & Q(unclaimed__gt=0, tried=False)),
        wrong=Min("lfn", filter=kept & Q(unclaimed__lt=0)),
    )
    if (wrong := sums.pop("wrong")) is not None:
        raise LedgerViolation(f"{wrong}: more events are claimed than the file has")
    return Ledger(**sums)
