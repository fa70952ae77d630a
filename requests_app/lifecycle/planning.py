"""SUBMITTED to the schedd: facts become rows, admission, planning, submission (docs/architecture.md, The way of one request).

A request that leaves PLANNING without a submission has its READY DAG discarded first: QUEUED and HELD have no live DAG. While a
submission may have happened, the request stays until queue and history have proved its outcome.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from dags_app.models import DAG, DAGKind
from dags_app.selectors import dag_live
from dags_app.services.submit import (
    SubmissionUndecided,
    Submitted,
    dag_place,
    dag_record_submission,
    dag_submit,
    fence_forgotten,
    maybe_submitted,
)
from requests_app.admission.placement import schedd_for
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.lifecycle.finish import finish
from requests_app.lifecycle.lost_queue import end_lost
from requests_app.lifecycle.missing import check_locations
from requests_app.models import HoldCode, InputFile, RequestStatus
from requests_app.reqmgr2.reports import report_round, reported
from requests_app.services.workflow import workflow_import
from requests_app.states import hold_changes
from requests_app.work.expected_lumis import lumis_expected
from requests_app.work.groups import PARENTS, parents_missing
from requests_app.work.input_reading import input_open
from requests_app.work.ledger import ledger_of
from requests_app.work.pileup import pileup_now
from requests_app.work.planner import MAX_NODES_PER_DAG, round_plan, round_plan_leftovers
from requests_app.work.rounds import dag_discard, rescue_prepare, round_plan_anew
from requests_app.work.spec import spec_of
from requests_app.work.unmerged import unmerged_watch
from wms2.errors import (
    DocumentRefused,
    LedgerViolation,
    NoPileup,
    NoSite,
    ParentEnded,
    PlanningRefused,
    ResourceBusy,
    ServiceRejected,
    ServiceUnavailable,
    ShortOfEvents,
)
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.locks import LockKey, transaction_lock
from wms2.web.formatting import counted
from wms2.work.resources import PLANNING, resource

S = RequestStatus
#: What holds a request that is being planned, by the first kind of error that fits.
_HELD_BY = {
    ServiceRejected: HoldCode.SUBMISSION,
    ShortOfEvents: HoldCode.SHORT,
    PlanningRefused: HoldCode.REFUSED,
    LedgerViolation: HoldCode.LEDGER,
}
#: Until a request that found no memory free to plan with is evaluated again, at most.
NONE_FREE_SECONDS = 10.0


def handle_planning(evaluation: Evaluation) -> None:
    """A crashed attempt has its DAG row already; a round that is not over is rescued; otherwise plan what is left."""
    try:
        dag = dag_live(evaluation.request.workflow.pk) or rescue_prepare(evaluation) or _plan(evaluation)
        if dag is None:
            finish(evaluation)
            if evaluation.request.status == S.PLANNING:  # what it waits for may take days, and needs no slot
                evaluation.transition(S.ACTIVE, f"nothing is left to plan; waits for {evaluation.request.waiting_for}")
            return
        if dag.lost_confirmed_at is not None:
            end_lost(evaluation, dag)
            return
        try:
            _submit(evaluation, dag)
        except NoPileup as error:
            round_plan_anew(evaluation, dag, f"its pileup is at none of its sites: {error}"[:4000])
            handle_planning(evaluation)
    except ResourceBusy as error:
        evaluation.note(waiting_for=f"{error}")
        evaluation.again_in(random.uniform(0.5, 1.0) * NONE_FREE_SECONDS)  # noqa: S311
    except (ServiceRejected, PlanningRefused, LedgerViolation) as error:
        code = next(code for kind, code in _HELD_BY.items() if isinstance(error, kind))
        leave_planning(evaluation, S.HELD, str(error), **hold_changes(code, str(error)))
    except (ServiceUnavailable, NoSite) as error:
        leave_planning(evaluation, S.QUEUED, f"not now: {error}", **evaluation.paused(error))


def _plan(evaluation: Evaluation) -> DAG | None:
    """With the memory that it takes, of which there is so much over all workers."""
    made, files = spec_of(evaluation.request.workflow).generation, InputFile.objects.filter(workflow=evaluation.request.workflow)
    jobs = made.events // max(1, made.events_per_job) if made else files[:MAX_NODES_PER_DAG].count()
    # MB beside an idle worker, at most: 3.2 kB a job were measured (docs/performance.md)
    with resource(PLANNING, 16 + min(MAX_NODES_PER_DAG, jobs) * 4 // 1000, evaluation.request.request_name):
        return round_plan(evaluation)


def record_submission(evaluation: Evaluation, dag: DAG, submitted: Submitted) -> None:
    """The submission and the request's new status, in one transaction."""
    reports = dag.kind == DAGKind.FRESH and reported(evaluation.request)
    ledger = ledger_of(evaluation.request.workflow) if reports else None
    lumis = lumis_expected(evaluation.request.workflow, dag, ledger) if ledger is not None else 0
    with evaluation.fenced():
        dag_record_submission(dag=dag, submitted=submitted)
        evaluation.transition(
            S.ACTIVE,
            f"DAGMan job {submitted.cluster} at {dag.schedd_name}" + (" adopted" if submitted.adopted else ""),
            {"dag": str(dag.pk), "cluster": submitted.cluster, "attempt": dag.attempt, "fence": dag.fence},
            moving={},
        )
        if ledger is not None:
            totals = {"input_events": ledger.all_events, "input_lumis": lumis, "input_num_files": ledger.all_files}
            jobs = dag.node_counts.get("Processing", dag.total_nodes)
            last = not ledger.work_left and not input_open(evaluation.request.workflow)  # it may still grow
            report_round(evaluation.request, dag.round.index, jobs, totals, last=last)
    crash_point("submit.recorded")
    avoided = submitted.avoided
    if avoided is not None and avoided.short_of_pileup:
        many = counted(len(avoided.short_of_pileup), "work unit")
        alert(evaluation.request, "pileup_elsewhere", f"{many} without a site that has the pileup: {avoided}"[:4000])
    elif avoided is not None and avoided.stranded:
        many = counted(len(avoided.stranded), "work unit")
        alert(evaluation.request, "sites_unavailable", f"{many} without a site: {avoided}"[:4000])


def _submit(evaluation: Evaluation, dag: DAG) -> None:
    if dag.submit_intent_at is None and not fence_forgotten(dag):
        round_plan_leftovers(dag)
        _place(evaluation, dag)
    unmerged_watch(evaluation)
    request = evaluation.request
    again = dag.parent_dag_id is not None or dag.attempt > 0  # the first goes right after its planning
    outcome = dag_submit(
        dag=dag,
        request_name=request.request_name,
        priority=dag.job_priority,
        fenced=evaluation.fenced,
        pileup=lambda: pileup_now(spec_of(request.workflow), Path(dag.submit_dir)) if again else None,
    )
    if isinstance(outcome, SubmissionUndecided):
        evaluation.note(waiting_for=outcome.reason)
    else:
        record_submission(evaluation, dag, outcome)


def _place(evaluation: Evaluation, dag: DAG) -> None:
    """Where it was admitted to, or, if that is no longer to be had, elsewhere; a rescue has its schedd and only asks for room."""
    home = evaluation.request.reserved_schedd
    evaluation.request.refresh_from_db(fields=["moving"])  # that is not fenced: operators say it at any moment
    with transaction_lock(LockKey.ADMISSION):
        decision = schedd_for(evaluation.request, dag)
        if decision.schedd is None or decision.throttles is None:
            raise ServiceUnavailable("htcondor", "place", f"waits for {decision.waits_for}")
        if home is not None and home.directories != decision.schedd.directories:
            raise ServiceUnavailable("htcondor", "place", f"{decision.schedd.name} does not see what was written for {home.name}")
        evaluation.note(reserved_schedd=decision.schedd, reserved_slots=decision.slots)
        if dag.schedd is None:
            units, throttles = decision.units, decision.throttles.as_dict()
            dag_place(dag=dag, schedd=decision.schedd, why=decision.placement or {}, units=units, throttles=throttles)


def leave_planning(evaluation: Evaluation, to: RequestStatus, why: str, **changes: Any) -> None:
    """Discard a READY DAG that certainly never ran, and go; where it may have been submitted, stay and say so."""
    dag = dag_live(evaluation.request.workflow.pk)
    if dag is not None and maybe_submitted(dag):
        what = (
            f"submission attempt {dag.attempt} to {dag.schedd_name}"
            if dag.submit_intent_at
            else "a submission that was forgotten"
        )
        evaluation.note(waiting_for=f"the outcome of {what}: {why}"[:4000], last_error=why[:4000])
        return
    with evaluation.fenced():
        if dag is not None:
            dag_discard(dag=dag, reason=why)
        evaluation.transition(to, why, **changes)


def handle_submitted(evaluation: Evaluation) -> None:
    """Import, once its parents are done; a refusal holds it with every reason, an unavailable service is tried again later."""
    next_attempt_at = evaluation.request.next_attempt_at
    if next_attempt_at is not None and next_attempt_at > clock.now():
        return
    try:
        if parents := parents_missing(evaluation.request):
            evaluation.note(waiting_for=parents)
            return
        if evaluation.request.waiting_for.startswith(PARENTS):  # its time limit counts from here on
            evaluation.note(waiting_for="", status_since=clock.now())
        workflow_import(request=evaluation.request, fenced=evaluation.fenced)
    except (DocumentRefused, PlanningRefused, ServiceRejected) as error:
        code = HoldCode.PARENT if isinstance(error, ParentEnded) else HoldCode.REFUSED
        evaluation.hold(code, str(error))
        return
    except ServiceUnavailable as error:
        evaluation.pause(error)
        return
    crash_point("import.recorded")
    evaluation.transition(S.QUEUED, "workflow and input rows are complete")


def handle_queued(evaluation: Evaluation) -> None:
    """After a pause it takes part in admission, whose next pass says what it waits for."""
    request = evaluation.request
    if check_locations(evaluation) or request.next_attempt_at is None:
        return
    if request.next_attempt_at <= clock.now():
        evaluation.note(next_attempt_at=None, waiting_for="")
    elif not request.waiting_for:
        when = f"{request.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC"
        evaluation.note(waiting_for=f"next attempt at {when} after: {request.last_error}")


def handle_resubmitting(evaluation: Evaluation) -> None:
    """The DAG is gone and its rescue file is there: back into the queue."""
    evaluation.transition(S.QUEUED, "stopped cleanly, to be resumed from its rescue file")
