"""Where a request stands, in sentences: what its status means for it now, what happens next, and what a person should do.

For REST, the pages and the admin; shift instructions at length are in docs/runbook.md. Pure functions over rows already read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

from dags_app.models import DAG
from dags_app.services.stop import StopMode
from requests_app.models import HoldCode, Request, RequestStatus, ShownStatus, StopIntent
from requests_app.selectors.alert_texts import words_of
from wms2.web.formatting import ago, exact, word

S = RequestStatus
H = HoldCode

_NEXT: dict[RequestStatus, str] = {
    S.NEW: "WMS2 leaves it alone until it is submitted.",
    S.SUBMITTED: "Its configuration and its input files are being read; then it is queued.",
    S.QUEUED: "It is planned as soon as a slot is free and its turn has come.",
    S.PLANNING: "Its work is split and written down as a DAG, which is then submitted to a schedd.",
    S.ACTIVE: "HTCondor runs its DAG. What is done is registered as it comes; once all is registered its outputs are validated.",
    S.PARTIAL: "Its DAG ended with work units not done. It is rescued, or held if too many failed.",
    S.RESUBMITTING: "Its DAG is prepared to go on from its rescue file; then it is queued.",
    S.HELD: "Nothing, until an operator releases or aborts it. What is done stays registered.",
    S.VALIDATING_OUTPUTS: "Its blocks are compared with DBS, Rucio and the storage, then its events counted again. Its unmerged"
    " files stay meanwhile.",
    S.WAITING_INTEGRITY: "Once its integrity cases are closed, what they touched is validated again. Its unmerged files stay"
    " meanwhile.",
    S.VALIDATED_OUTPUTS: "DBS says whether it has enough events: then its unmerged files are removed; if not, it is extended.",
    S.REMOVING_FILES: "Its datasets become VALID in DBS and its unmerged files are removed; then it is completed.",
    S.COMPLETED: "Nothing but its archival after some days; everything is done, registered and validated.",
    S.ARCHIVED: "Nothing more; its packed DAG directories were moved, and can be read from there.",
    S.FAILED: "Nothing more; it was given up. What was done stays registered.",
    S.ABORTED: "Nothing more; it was aborted. What was done stays registered, registrations under way are finished.",
    S.CLEANING: "Everything it made is being removed.",
    S.CLEANED: "Nothing more; what it made is removed, or left to Rucio to remove. Its sites are looked at once more.",
}
_AFTER_STOP: dict[StopIntent, str] = {
    StopIntent.RESUME: "it goes on from its rescue file",
    StopIntent.STEP: "it goes on with its next production step",
    StopIntent.MOVE: "it goes on at another schedd",
    StopIntent.HOLD: "it is held",
    StopIntent.RESTART: "it is failed and a clone takes its place",
    StopIntent.FAIL: "it is failed",
    StopIntent.ABORT: "it is aborted",
    StopIntent.CLEAN: "everything it made is removed",
}
_ADVICE: dict[HoldCode, str] = {
    H.REFUSED: "Correct the cause in ReqMgr2, ConfigCache or DBS and release, or abort and import a corrected document.",
    H.OPERATOR: "Ask the operator who held it; then release.",
    H.TIMEOUT: "Remove the cause named in the reason, then release.",
    H.LEDGER: "Do not release before it is understood: work was lost, doubled or invented. Report it.",
    H.SUBMISSION: "Repair the schedd's or the directory's permissions, then release.",
    H.THRESHOLD: "Look at the failures: one site, one input, one step? Then release; done units stay done.",
    H.RESCUES: "Look at the failures that keep coming back. A release allows as many rescues again.",
    H.ABORT_CODE: "Find the node that ended with 43 in DAGMan's log. A release plans what is left anew.",
    H.REMOVED: "Find out who removed the DAGMan job. A release goes on from the rescue file.",
    H.QUEUE_LOST: "Release it: what is done counts, what is left is planned anew. Let the schedd be repaired first.",
    H.SHORT: "See which input is left and why, or why DBS has too few events; a release may say what share is enough.",
    H.EXCLUDED: "Have the files repaired and let them in again, or accept in the release that it completes without them.",
    H.RUN_ELSEWHERE: "Make sure that no other system runs it; then release. If one does, abort it here.",
    H.FAILED_ELSEWHERE: "Find out who set it and why. Abort it here, or have it assigned again in ReqMgr2, then release.",
    H.PARENT: "Restart the request that it depends on, or change what it depends on; then release.",
    H.OUTCOME_UNKNOWN: "Make sure that no job of its last DAG runs any more; then release: what is done stays done.",
}


#: An evaluation that is due waits for its turn for less than that.
OVERDUE = timedelta(minutes=10)


class Explanation(NamedTuple):
    """``why``: what holds it where it is, in its own words; ``next``: what happens by itself; ``todo``: for a person."""

    why: str
    alert: str
    next: str
    todo: str


def explain(request: Request, now: datetime | None = None, dag: DAG | None = None) -> Explanation:
    """Sentences about one request, each may be empty; ``dag`` is its live one, which decides what happens next."""
    status, now = word(S, request.status), now or timezone.now()
    return Explanation(
        why=" ".join(filter(None, (_waits(request, status, now), _overdue(request, now)))),
        alert=alert_of(request),
        next=_next(request, status, dag),
        todo=todo_of(request),
    )


def alert_of(request: Request) -> str:
    """What its alert says; empty without one."""
    return words_of(request.alert_code).means if request.alert_code else ""


def todo_of(request: Request) -> str:
    """What a person is to do about it; empty where nothing is."""
    if request.status == S.HELD:
        return hold_advice(request.hold_code)
    return words_of(request.alert_code).todo if request.alert_code else ""


def _overdue(request: Request, now: datetime) -> str:
    """That no evaluation begins: where its row is locked none can say so. Of the lease that was read with it."""
    lease = request._state.fields_cache.get("lease")
    if lease is None or lease.due_at is None or now < lease.due_at + OVERDUE or (lease.expires_at and lease.expires_at >= now):
        return ""
    return (
        f"Due since {exact(lease.due_at)}, and no process has taken it: another session of the database keeps its row locked, or "
        "no worker runs."
    )


def _waits(request: Request, status: RequestStatus, now: datetime) -> str:
    if status is S.HELD:
        return f"{word(HoldCode, request.hold_code).label}: {request.hold_reason}"
    if request.next_attempt_at and request.next_attempt_at > now:
        again = f"next attempt {ago(request.next_attempt_at, now)}"
        return f"{request.last_error or request.waiting_for} ({again})" if request.last_error or request.waiting_for else again
    return f"Waits for {request.waiting_for}" if request.waiting_for else ""


def _next(request: Request, status: RequestStatus, dag: DAG | None) -> str:
    if status is S.STOPPING:
        intent = word(StopIntent, request.stop_intent)
        after = _AFTER_STOP.get(intent)
        if after is None:
            return ""
        if dag is not None and dag.stop_mode == StopMode.DRAIN and intent.goes_on:
            return f"Work units that run finish first, no other starts; once queue and history prove its DAG gone, {after}."
        return f"Its DAG is being removed; once queue and history prove it gone, {after}."
    if request.status_shown == ShownStatus.COMPLETING:
        return f"It ends what it has; {request.derived_by} does what it has not used. {_NEXT[status]}"
    if request.status_shown == ShownStatus.RECOVERING:
        return f"It had completed; files of it were lost, and are made again. {_NEXT[status]}"
    return _NEXT.get(status, "")


def hold_advice(code: str) -> str:
    """What to do about a request that is held for this."""
    return _ADVICE.get(word(HoldCode, code), "")
