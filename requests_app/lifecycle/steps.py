"""Production steps in the life cycle: stop at a step without losing work, and go on with the lower priority (spec 6.2.1)."""

from __future__ import annotations

from typing import Any

from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitState
from dags_app.services.stop import StopMode, dag_request_stop
from requests_app.lease import Evaluation
from requests_app.models import Request, RequestStatus, StopIntent
from requests_app.selectors.account import MOST_FRESH_SECONDS, stored_ledger
from requests_app.work.ledger import ledger_of
from requests_app.work.production_steps import STEP_BEFORE, share_done, steps_of, steps_passed
from wms2.adapters.types import JobStatus

S = RequestStatus


def step_begin(evaluation: Evaluation, dag: DAG) -> bool:
    """Drain the running DAG when the next step is passed and units of it are left that have not begun; True when it is so.

    Otherwise the step is taken when the DAG has ended, before the next is submitted (``step_taken``). A drain loses
    nothing: work units that run finish, so a little more than the share gets done at the old priority.
    """
    request = evaluation.request
    steps = steps_of(request)
    if not steps or dag.status != DAGStatus.RUNNING or dag.unanswered_since is not None:
        return False
    if dag.observed.get("job_status") == JobStatus.HELD:
        return False  # it would never end its drain; the hold raises an alert instead
    ledger, present = stored_ledger(request, request.workflow)
    share = share_done(ledger)
    passed = steps_passed(steps, share)
    if not present:
        evaluation.again_in(MOST_FRESH_SECONDS)  # more may be done than was counted
    waiting = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.PLANNED).count()
    if not passed or waiting <= int(dag.observed.get("units_running", 0)):
        return False
    priority = steps[passed - 1].priority
    if priority >= request.priority:
        return False  # it was lowered meanwhile: the step would change nothing
    why = f"production step at {steps[passed - 1].fraction:.1%}: {share:.1%} are done, the rest goes on with priority {priority}"
    with evaluation.fenced():
        evaluation.transition(S.STOPPING, why, {"share_done": share, "priority": priority}, stop_intent=StopIntent.STEP)
        dag_request_stop(dag=dag, reason=why, mode=StopMode.DRAIN)
    return True


def step_taken(evaluation: Evaluation) -> dict[str, Any]:
    """The fields of a request whose DAG has ended, for a step or by itself: the priority of the last step passed by now, unless
    it is lower already, and the steps to come.

    Empty when none is passed, also when the steps were taken away meanwhile, or put off to a share not done yet.
    """
    if not evaluation.request.production_steps:
        return {}
    share = share_done(ledger_of(evaluation.request.workflow, whole=False))
    evaluation.request.refresh_from_db(fields=["priority", "production_steps"])  # not fenced: operators say these at any moment
    steps = steps_of(evaluation.request)
    passed = steps_passed(steps, share)
    if not passed:
        return {}
    left = evaluation.request.production_steps[passed:]
    return {"priority": min(evaluation.request.priority, steps[passed - 1].priority), "production_steps": left}


def step_evidence(request: Request, taken: dict[str, Any]) -> dict[str, Any]:
    """For the transition that takes a step, so that a next version can begin as this one did (``before_steps``)."""
    return {**taken, STEP_BEFORE: {name: getattr(request, name) for name in taken}} if taken else {}
