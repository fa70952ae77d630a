"""The request's status table as data, and its single writer (docs/design/model.md, Request statuses).

Owns: which edges exist, what each may change beside the status, the audit rows. Does not own: when to take an edge
(``lifecycle``, ``services``). Nothing else in WMS2 writes ``Request.status`` or ``Workflow.status``.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q

from outputs_app.blocks.ownership import names_release
from outputs_app.checks.cases import cases_end
from outputs_app.models import OutputDataset
from requests_app.feed import emit_event
from requests_app.models import (
    TERMINAL,
    Alert,
    EvaluationLease,
    HoldCode,
    Request,
    RequestStatus,
    RequestTransition,
    Workflow,
    WorkflowStatus,
)
from requests_app.reqmgr2.reports import report_status
from wms2.errors import InvalidTransition, StaleState
from wms2.metrics.series import TRANSITIONS_TOTAL
from wms2.runtime import clock
from wms2.runtime.due import mark_due

log = structlog.get_logger(__name__)
S = RequestStatus

#: from -> {to: who and on what guard}. ``CLEANING`` is added to all below but ACTIVE, which stops first.
TRANSITIONS: dict[RequestStatus, dict[RequestStatus, str]] = {
    S.NEW: {S.SUBMITTED: "requester", S.ABORTED: "requester"},
    S.SUBMITTED: {
        S.QUEUED: "workflow and input rows committed",
        S.HELD: "refused, one hour, operator",
        S.ABORTED: "operator",
    },
    S.QUEUED: {
        S.PLANNING: "admission, slot taken: fresh round or rescue",
        S.HELD: "operator",
        S.ABORTED: "operator",
    },
    S.PLANNING: {
        S.ACTIVE: "submission recorded or adopted; nothing left to plan, registrations or accounts open",
        S.QUEUED: "a service or schedd is unavailable: slot back, next_attempt_at",
        S.HELD: "refused, ledger violation, one hour",
        S.VALIDATING_OUTPUTS: "nothing left to plan, no effect pending",
        S.STOPPING: "a verb while a submission intent is open",
        S.ABORTED: "no intent, or its absence proved",
    },
    S.ACTIVE: {
        S.PARTIAL: "DAG proved gone, final sweep done, some unit not done",
        S.QUEUED: "round closed, work left",
        S.VALIDATING_OUTPUTS: "no work left, blocks ARCHIVED, no effect pending or dead",
        S.STOPPING: "stop, hold, step, move, fail, restart, abort, clean, ledger violation",
        S.HELD: "DAG removed from outside, aborted by 43, queue lost and confirmed",
    },
    S.PARTIAL: {
        S.PLANNING: "failure rescue; keeps its slot, also one that was lent",
        S.HELD: "threshold, rescues used up, 43",
        S.FAILED: "operator",
        S.ABORTED: "operator",
    },
    S.STOPPING: {
        S.RESUBMITTING: "resume, step, move; DAG gone, rescue file there",
        S.QUEUED: "the DAG had finished by itself, work left",
        S.VALIDATING_OUTPUTS: "the DAG had finished by itself, nothing left, everything registered",
        S.HELD: "intent hold",
        S.FAILED: "intent fail or restart",
        S.ABORTED: "intent abort",
        S.CLEANING: "intent clean",
    },
    S.RESUBMITTING: {S.QUEUED: "rescue row prepared", S.HELD: "ten minutes", S.ABORTED: "operator"},
    S.HELD: {
        S.QUEUED: "release",
        S.SUBMITTED: "release before a workflow exists",
        S.VALIDATING_OUTPUTS: "release of what was held after its last job",
        S.FAILED: "fail, restart",
        S.ABORTED: "operator",
    },
    S.VALIDATING_OUTPUTS: {S.VALIDATED_OUTPUTS: "no finding", S.WAITING_INTEGRITY: "findings", S.HELD: "operator"},
    S.WAITING_INTEGRITY: {S.VALIDATING_OUTPUTS: "cases closed", S.HELD: "operator"},
    S.VALIDATED_OUTPUTS: {
        S.REMOVING_FILES: "enough",
        S.QUEUED: "work left, or short: extended",
        S.HELD: "short and not to be extended; operator",
    },
    S.REMOVING_FILES: {S.COMPLETED: "nothing left to clean, datasets VALID", S.HELD: "operator"},
    S.COMPLETED: {S.ARCHIVED: "after the grace", S.WAITING_INTEGRITY: "operator: files of it were lost"},
    S.ARCHIVED: {S.WAITING_INTEGRITY: "operator: files of it were lost"},
    S.FAILED: {},
    S.ABORTED: {},
    S.CLEANING: {S.CLEANED: "nothing of it left outside"},
    S.CLEANED: {},
}
for _status, _edges in TRANSITIONS.items():
    if _status not in (S.CLEANED, S.CLEANING, S.ACTIVE):
        _edges.setdefault(S.CLEANING, "operator, typed")

#: Workflow.status mirrors Request.status through this and nothing else.
_MIRRORED = {
    WorkflowStatus.NEW: (S.NEW, S.SUBMITTED, S.QUEUED),
    WorkflowStatus.PLANNING: (S.PLANNING,),
    WorkflowStatus.ACTIVE: (S.ACTIVE, S.VALIDATING_OUTPUTS, S.VALIDATED_OUTPUTS, S.REMOVING_FILES),
    WorkflowStatus.PARTIAL: (S.PARTIAL,),
    WorkflowStatus.STOPPING: (S.STOPPING, S.CLEANING),
    WorkflowStatus.RESUBMITTING: (S.RESUBMITTING,),
    WorkflowStatus.HELD: (S.HELD, S.WAITING_INTEGRITY),
    WorkflowStatus.COMPLETED: (S.COMPLETED, S.ARCHIVED),
    WorkflowStatus.FAILED: (S.FAILED,),
    WorkflowStatus.ABORTED: (S.ABORTED, S.CLEANED),
}
WORKFLOW_STATUS = {status: mirror for mirror, statuses in _MIRRORED.items() for status in statuses}

#: Fields that a transition may set beside the status.
_MAY_CHANGE = {
    "hold_code", "hold_reason", "stop_intent", "next_attempt_at", "failed_attempts", "last_error", "waiting_for", "priority",
    "production_steps", "reserved_schedd", "reserved_slots", "moving",
}  # fmt: skip


def allowed(from_status: str, to_status: str) -> bool:
    """Whether the table has the edge."""
    known = from_status in RequestStatus.values  # a later release knows what may follow from its own
    return known and RequestStatus(to_status) in TRANSITIONS[RequestStatus(from_status)]


def transition(
    request: Request,
    to: RequestStatus,
    *,
    actor: str,
    reason: str,
    evidence: dict[str, Any] | None = None,
    lease_epoch: int | None = None,
    **changes: Any,
) -> None:
    """Move a request along one edge, with its audit rows, in one transaction; ``request`` is refreshed.

    Args:
        request: as the caller last read it; its ``status`` and ``stop_intent``, of an evaluation also ``complete_early``, are the
            compare part of the compare-and-set.
        actor: user name, or ``lifecycle``.
        evidence: what the guard saw, with its time.
        lease_epoch: the evaluation's fence; None for a person's operation.
        changes: further fields (``hold_code``, ``stop_intent``, ...).

    Raises:
        InvalidTransition: no such edge.
        StaleState: the row is no longer as read, or the lease is another process's by now. Nothing was written.
    """
    old = RequestStatus(request.status)
    if to not in TRANSITIONS[old]:
        raise InvalidTransition(f"{request.request_name}: {old.label} cannot become {to.label}")
    unknown = changes.keys() - _MAY_CHANGE
    if unknown:
        raise TypeError(f"a transition may not set {sorted(unknown)}")
    now = clock.now()
    values: dict[str, Any] = {
        "status": to,
        "status_since": now,
        "updated_at": now,
        "alert_code": "",
        "alerted_at": None,
        **_defaults(old, to, now),
        **changes,
    }
    rows = Request.objects.filter(pk=request.pk, status=old, stop_intent=request.stop_intent)
    if lease_epoch is not None:  # an evaluation is to know what operators have asked for
        rows = rows.filter(complete_early=request.complete_early)
    # locked, so that no other process takes the lease before the present transaction ends
    leases = EvaluationLease.objects.select_for_update(no_key=True).filter(request_id=request.pk).values_list("epoch", flat=True)
    with transaction.atomic():
        kept = lease_epoch is None or leases.filter(epoch=lease_epoch).first() is not None
        if not kept or rows.update(**values) != 1:
            raise StaleState(f"{request.request_name}: no longer {old.label}, or evaluated by another process")
        Workflow.objects.filter(request_id=request.request_name).update(status=WORKFLOW_STATUS[to], updated_at=now)
        Alert.objects.filter(request=request.pk, condition=False, ended_at=None).update(ended_at=now)
        RequestTransition.objects.create(
            request=request, from_status=old, to_status=to, actor=actor, reason=reason, evidence=evidence or {}
        )
        more = {name: str(changes[name]) for name in ("hold_code", "hold_reason", "stop_intent") if changes.get(name)}
        emit_event("request.status", request, **{"from": old}, to=to, actor=actor, reason=reason, **more)
        if lease_epoch is None:
            mark_due([request.pk], "status")
        report_status(request, to)
        if to in TERMINAL:
            names_release(request_id=request.pk)
            cases_end(request.pk)
        if to in (*TERMINAL, S.COMPLETED, S.CLEANING):
            mark_related_due(request)
    for name, value in values.items():
        setattr(request, name, value)
    TRANSITIONS_TOTAL.labels(to).inc()
    log.info("request status", request_name=request.request_name, old=old.value, new=to.value, actor=actor, reason=reason)


def mark_related_due(request: Request) -> None:
    """Have looked at what waits for a request: what depends on it, those of its group that have their outputs validated, and
    those that read what it makes."""
    siblings = Q(in_group__isnull=False, in_group=request.in_group_id, status=S.VALIDATED_OUTPUTS)
    names = OutputDataset.objects.filter(workflow__request=request).values("name")
    readers = Q(workflow__input_dataset__in=names, status__in=(S.ACTIVE, S.QUEUED, S.WAITING_INTEGRITY, S.VALIDATED_OUTPUTS))
    rows = Request.objects.filter(Q(depends_on=request, status=S.SUBMITTED) | siblings | readers)
    mark_due(set(rows.values_list("pk", flat=True)), "related")


def record_creation(request: Request, *, actor: str, reason: str) -> None:
    """The first transition row, from nothing, and its lease; in the transaction that creates the request."""
    EvaluationLease.objects.bulk_create([EvaluationLease(request=request)], ignore_conflicts=True)
    mark_due([request.pk], "created")
    report_status(request, request.status)
    RequestTransition.objects.create(request=request, from_status="", to_status=request.status, actor=actor, reason=reason)
    emit_event("request.status", request, **{"from": ""}, to=request.status, actor=actor, reason=reason)


def hold_changes(code: HoldCode, reason: str) -> dict[str, Any]:
    """The fields that go with a transition to HELD."""
    return {"hold_code": code, "hold_reason": reason}


def _defaults(old: RequestStatus, to: RequestStatus, now: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"waiting_for": ""}
    if to not in (S.HELD, S.STOPPING):
        values |= {"hold_code": "", "hold_reason": ""}
    if to is S.QUEUED and old is not S.PLANNING:  # a failed attempt keeps its place
        values |= {"queued_at": now}
    if old is S.SUBMITTED:  # the workflow has it; or what was refused may be corrected before it comes here again
        values |= {"prepared": None}
    if old is S.SUBMITTED or to in (S.ACTIVE, S.HELD, S.VALIDATING_OUTPUTS, S.FAILED, S.ABORTED, S.CLEANING):
        values |= {"next_attempt_at": None, "failed_attempts": 0}
        if to not in (S.HELD, S.FAILED, S.ABORTED):  # it was overcome
            values |= {"last_error": ""}
    if old is S.STOPPING:
        values |= {"stop_intent": "", "last_error": ""}
    if to is S.COMPLETED:
        values |= {"completed_at": now}
    return values
