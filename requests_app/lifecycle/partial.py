"""PARTIAL: rescue below the threshold, otherwise hold (error-handling 3.2; FAILED is never set here).

What counts as failed: docs/design/model.md, Failed units.
"""

from __future__ import annotations

from typing import Any

from dags_app.models import WorkUnit, WorkUnitState
from dags_app.selectors import dag_last
from dags_app.services.failure_summary import failure_summary
from requests_app.lease import Evaluation
from requests_app.lifecycle.steps import step_evidence, step_taken
from requests_app.models import HoldCode, RequestStatus
from requests_app.states import hold_changes
from requests_app.work.block_limits import blocks_let_failed_go
from requests_app.work.overrides import hold_threshold, max_rescues
from requests_app.work.rounds import failure_rescues, round_open

S = RequestStatus


def handle_partial(evaluation: Evaluation) -> None:
    """Failed units over the round's units against the threshold; rescues since the last release against the maximum.

    A unit that DAGMan finished and that only lacks its account has not failed; nor has one that somebody removed from the queue.
    """
    blocks_let_failed_go(evaluation)
    workflow = evaluation.request.workflow
    round_ = round_open(workflow)
    units = WorkUnit.objects.filter(round=round_)
    total, open_ = units.count(), units.filter(state=WorkUnitState.PLANNED).count()
    last = dag_last(workflow.pk)
    removed = min(int(last.outcome.get("units", {}).get("removed", 0)), open_) if last is not None else 0
    failed = open_ - removed
    rescues = failure_rescues(evaluation, round_) if round_ else 0
    summary = failure_summary(workflow.pk)
    threshold, most = hold_threshold(evaluation.request), max_rescues(evaluation.request)
    evidence: dict[str, Any] = {
        "work_units": total,
        "failed": failed,
        "removed": removed,
        "rescues": rescues,
        "threshold": threshold,
        "max_rescues": most,
    }
    evidence["failures"] = summary
    if total and failed / total >= threshold:
        why = _with(f"{failed} of {total} work units failed, the threshold is {threshold:.0%}", summary)
        evaluation.transition(S.HELD, why, evidence, **hold_changes(HoldCode.THRESHOLD, why))
    elif rescues >= most:
        why = _with(f"{failed} of {total} work units still failed after {rescues} rescues", summary)
        evaluation.transition(S.HELD, why, evidence, **hold_changes(HoldCode.RESCUES, why))
    else:
        told = f", {removed} were removed from the queue" if removed else ""
        why = f"rescue {rescues + 1} of {most}: {failed} of {total} work units failed{told}"
        step = step_taken(evaluation)
        evaluation.transition(S.PLANNING, why, evidence | step_evidence(evaluation.request, step), **step)


def _with(why: str, summary: str) -> str:
    return f"{why}; {summary}" if summary else why
