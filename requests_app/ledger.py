"""The account of a request's work: planned + done + attempted + abandoned + excluded + left = all (``model.md`` section 3).

Every number is counted from claims and exclusions, never kept. For a generation the unit is events; with input it is files, and
events beside them. Checked at each transition that rests on it; a violation holds the request.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import BigIntegerField, BooleanField, Case, Count, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce

from dags_app.models import WorkUnitClaim, WorkUnitState
from dags_app.planning.specs import WorkflowSpec
from requests_app.models import InputFile, Workflow
from requests_app.workflow_spec import spec_of
from wms2.errors import LedgerViolation

_PLANNED = (WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the work of one request stands. ``lost_events`` are numbers that failed generation took, never made again."""

    all_events: int
    done_events: int
    planned_events: int
    excluded_events: int
    left_events: int
    lost_events: int
    all_files: int
    done_files: int
    planned_files: int
    attempted_files: int
    excluded_files: int
    left_files: int
    taken_numbers: int  # generation: how far the event offset has moved

    def as_dict(self) -> dict[str, Any]:
        """For evidence and the API."""
        return asdict(self)

    def summary(self) -> str:
        """One line for people."""
        if self.all_files:
            return (
                f"{self.done_files} files done, {self.planned_files} planned, {self.attempted_files} attempted, "
                f"{self.excluded_files} excluded, {self.left_files} left of {self.all_files}"
            )
        return f"{self.done_events} events done, {self.planned_events} planned, {self.left_events} left of {self.all_events}"


def ledger_of(workflow: Workflow) -> Ledger:
    """Count."""
    spec = spec_of(workflow)
    return _of_input(workflow) if spec.input is not None else _of_generation(workflow, spec)


def ledger_check(ledger: Ledger) -> None:
    """Conservation.

    Raises:
        LedgerViolation: work was lost, doubled or invented; says which sum does not hold.
    """
    if ledger.all_files:
        parts = ledger.done_files + ledger.planned_files + ledger.attempted_files + ledger.excluded_files + ledger.left_files
        if parts != ledger.all_files:
            raise LedgerViolation(
                f"files do not add up: {parts} accounted for, {ledger.all_files} in the input ({ledger.summary()})"
            )
        events = ledger.done_events + ledger.planned_events + ledger.excluded_events + ledger.left_events
        if events != ledger.all_events:
            raise LedgerViolation(f"events do not add up: {events} accounted for, {ledger.all_events} in the input")
        return
    taken = ledger.done_events + ledger.planned_events + ledger.lost_events
    if taken > ledger.taken_numbers:
        raise LedgerViolation(f"{taken} events are claimed, but only {ledger.taken_numbers} event numbers were taken")
    if ledger.done_events + ledger.planned_events > ledger.all_events:
        raise LedgerViolation(f"{ledger.summary()}: more is planned and done than was asked for")


def files_left(workflow: Workflow) -> QuerySet[Any]:
    """Files with events that nobody has claimed, fresh ones before those of failed units (error-handling 5.2)."""
    return _files(workflow).filter(excluded_at__isnull=True, unclaimed__gt=0).order_by("tried", "lfn")


def _of_generation(workflow: Workflow, spec: WorkflowSpec) -> Ledger:
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, kind__contains=WorkUnitClaim.KIND_GENERATED)

    def events(rows: QuerySet[WorkUnitClaim]) -> int:
        return rows.aggregate(total=Sum("events"))["total"] or 0

    done = events(claims.filter(live=True, unit__state=WorkUnitState.DONE))
    planned = events(claims.filter(live=True, unit__state__in=_PLANNED))
    first = spec.generation.first_event if spec.generation else 1
    return Ledger(
        all_events=workflow.requested_events,
        done_events=done,
        planned_events=planned,
        excluded_events=0,
        left_events=max(0, workflow.requested_events - done - planned),
        lost_events=events(claims.filter(live=False)),
        all_files=0,
        done_files=0,
        planned_files=0,
        attempted_files=0,
        excluded_files=0,
        left_files=0,
        taken_numbers=workflow.next_first_event - first,
    )


def _files(workflow: Workflow) -> QuerySet[Any]:
    """Input files with what is claimed of each. A file without events counts as one, so that its lumis are work too."""
    share = Case(When(events=0, then=Value(1)), default=F("claims__events"), output_field=BigIntegerField())

    def claimed(*states: WorkUnitState) -> Coalesce:
        of_live = Q(claims__live=True, claims__unit__state__in=states)
        return Coalesce(Sum(share, filter=of_live), Value(0), output_field=BigIntegerField())

    return (
        InputFile.objects.filter(workflow=workflow)
        .annotate(
            weight=Case(When(events=0, then=Value(1)), default=F("events"), output_field=BigIntegerField()),
            done=claimed(WorkUnitState.DONE),
            planned=claimed(*_PLANNED),
            failed_claims=Count("claims", filter=Q(claims__live=False)),
        )
        .annotate(
            unclaimed=F("weight") - F("done") - F("planned"),
            tried=Case(When(failed_claims__gt=0, then=Value(True)), default=Value(False), output_field=BooleanField()),
        )
    )


def _of_input(workflow: Workflow) -> Ledger:
    kept, out = Q(excluded_at__isnull=True), Q(excluded_at__isnull=False)
    real = kept & ~Q(events=0)

    def events(field: str, condition: Q) -> Coalesce:
        return Coalesce(Sum(field, filter=condition), Value(0), output_field=BigIntegerField())

    files = _files(workflow)
    wrong = files.filter(kept, unclaimed__lt=0).first()
    if wrong is not None:
        raise LedgerViolation(f"{wrong.lfn}: more events are claimed than the file has")
    sums = files.aggregate(
        all_events=events("events", Q()),
        done_events=events("done", real),
        planned_events=events("planned", real),
        excluded_events=events("events", out),
        left_events=events("unclaimed", real),
        all_files=Count("pk"),
        done_files=Count("pk", filter=kept & Q(done__gte=F("weight"))),
        planned_files=Count("pk", filter=kept & Q(unclaimed=0, planned__gt=0)),
        attempted_files=Count("pk", filter=kept & Q(unclaimed__gt=0, tried=True)),
        excluded_files=Count("pk", filter=out),
        left_files=Count("pk", filter=kept & Q(unclaimed__gt=0, tried=False)),
    )
    return Ledger(**sums, lost_events=0, taken_numbers=0)
