"""ACTIVE: account what is done, notice the end of the DAG, go on (spec 4.2, 4.6; docs/design/model.md, Request statuses).

With the end come the bans that its failures have earned (error-handling 6.1, 6.2), reported in the feed and audited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import structlog
from django.db import transaction

from dags_app.models import DAG, DAGStatus
from dags_app.selectors import dag_live, units_done_at
from dags_app.services.failures import failures_without_success, site_failures
from dags_app.services.leave_site import of_former_release
from dags_app.services.lost_queue import dag_fenced_off
from dags_app.services.outcome import Outcome, dag_outcome, dispute_note
from dags_app.services.submit import dag_avoid, units_to_land
from dags_app.states import dag_transition, history
from requests_app.alerts import alert, alert_over
from requests_app.feed import emit_event
from requests_app.lease import Evaluation
from requests_app.lifecycle.credentials import stop_for_credential
from requests_app.lifecycle.finish import finish
from requests_app.lifecycle.lost_queue import end_lost, report_obstacle, report_suspicion, stop_fenced_off
from requests_app.lifecycle.pileup_moves import pileup_watch
from requests_app.lifecycle.steps import step_begin
from requests_app.lifecycle.unbegun import unbegun_watch
from requests_app.models import HoldCode, Request, RequestStatus, StopIntent
from requests_app.states import hold_changes
from requests_app.work.accounting import account, account_final, progress_sentence, unaccounted
from requests_app.work.unmerged import unmerged_watch
from sites_app.bans import AUTOMATIC, BAN, LEFT, SiteFailures, bans_left, problem_sites, site_ban, site_promote
from sites_app.guard import ban_objection
from sites_app.models import Schedd, Site
from sites_app.schedds import adapter
from sites_app.selectors import candidate_sites
from wms2.audit import audit
from wms2.errors import InvalidTransition, LedgerViolation, ServiceRejected, ServiceUnavailable, StaleState
from wms2.web.formatting import counted

#: So many failed attempts of a DAG in which no job has done well yet raise an alert.
_ALERT_FAILED_ATTEMPTS = 10

log = structlog.get_logger(__name__)
S = RequestStatus
#: Event type in DAGHistory: jobs in the queue got another priority.
PRIORITY_PASSED = "priority_passed"
#: Units still to land avoid sites that were taken off the lists.
SITES_PASSED = "sites_passed"
#: So many looks, a cycle apart, find no landing job that waits for them: DAGMan may be submitting one at the first.
PASSED_TIMES = 2


def handle_active(evaluation: Evaluation) -> None:
    """One step of a request whose DAG runs or has just ended."""
    workflow = evaluation.request.workflow
    dag = evaluation.dag = dag_live(workflow.pk)
    if dag is not None:
        dag.workflow = workflow
    try:
        if dag is None:
            finish(evaluation)
        elif dag.lost_confirmed_at is not None:
            _confirmed_lost(evaluation, dag)
        elif dag.missing_since is not None:
            _ended(evaluation, dag)
        elif dag_fenced_off(dag):
            stop_fenced_off(evaluation, dag)
        else:
            account(evaluation, dag)
            if stop_for_credential(evaluation, dag) or step_begin(evaluation, dag):
                return
            if dag.schedd is not None and dag.unanswered_since is None:
                _pass_priority(evaluation, dag, dag.schedd)
                _pass_sites(evaluation, dag)
                unbegun_watch(evaluation, dag, dag.schedd)
                pileup_watch(evaluation, dag, dag.schedd)
            unmerged_watch(evaluation)
            _report(evaluation, dag)
        if dag is not None and dag.missing_since is not None:
            evaluation.again_next_cycle()  # it goes on asking
    except LedgerViolation as error:  # never continue over one: stop what runs, then hold with the reason
        alert(evaluation.request, "ledger_violation", str(error))
        changes = hold_changes(HoldCode.LEDGER, str(error))
        evaluation.transition(S.STOPPING, str(error), stop_intent=StopIntent.HOLD, **changes)


def _pass_priority(evaluation: Evaluation, dag: DAG, schedd: Schedd) -> None:
    """A changed priority reaches the jobs in the queue now, again each cycle, and the DAG itself at its next submission.

    One that is changed back is passed once: the jobs that DAGMan adds have the DAG's own. To that a DAG of a former release adds
    the unit's place, in its rescues too.
    """
    wanted, passed = evaluation.request.priority, dag.passed_priority
    if wanted == dag.job_priority and passed in (None, wanted) and not (dag.parent_dag_id and of_former_release(dag)):
        return
    evaluation.again_next_cycle()
    try:
        changed = adapter(schedd).set_priority(str(dag.directory_id), dag.fence, wanted)
    except (ServiceUnavailable, ServiceRejected) as error:
        log.warning("priority not passed on", request_name=evaluation.request.request_name, dag_id=str(dag.pk), error=str(error))
        return
    if passed != wanted:
        with evaluation.fenced():
            DAG.objects.filter(pk=dag.pk).update(passed_priority=wanted)
            history(dag, PRIORITY_PASSED, detail={"priority": wanted})
    if changed:
        log.info("priority passed on", request_name=evaluation.request.request_name, dag_id=str(dag.pk), jobs=changed)


def _pass_sites(evaluation: Evaluation, dag: DAG) -> None:
    """Sites taken off the request's lists: what is still to land of a DAG that runs goes to none of them. That its files name a
    site already says nothing of the jobs in the queue, nor does the time of a ban: the bans were read before it was submitted."""
    if not evaluation.sites_left or dag.submitted_at is None:
        return
    gone = set(bans_left(dag.workflow_id).values_list("site_id", flat=True))
    passed = dag.history.filter(event_type=SITES_PASSED).values_list("detail__sites", flat=True)
    times = Counter(site for sites in passed for site in sites)
    gone = {site for site in gone if times[site] < PASSED_TIMES}
    if not gone:
        return
    evaluation.again_next_cycle()
    try:
        changed = dag_avoid(dag, gone)
    except (ServiceUnavailable, ServiceRejected, StaleState, OSError) as error:
        log.warning("sites not passed on", request_name=evaluation.request.request_name, dag_id=str(dag.pk), error=str(error))
        return
    if changed:  # DAGMan may have submitted another one meanwhile: it is asked again
        log.info("sites passed on", request_name=evaluation.request.request_name, dag_id=str(dag.pk), jobs=changed)
        return
    stranded = units_to_land(dag)[frozenset()]
    with evaluation.fenced():
        history(dag, SITES_PASSED, detail={"sites": sorted(gone), "units_without_site": stranded})
    if stranded:
        sites = ", ".join(sorted(gone))
        alert(evaluation.request, "sites_unavailable", f"{counted(stranded, 'work unit')} without a site: {LEFT}: {sites}"[:4000])


def _report(evaluation: Evaluation, dag: DAG) -> None:
    if int(dag.observed.get("nodes_done") or 0) > dag.units_done:  # not in the status file yet, or unaccounted
        evaluation.again_next_cycle()
    if report_obstacle(evaluation, dag):
        return
    progress, failed = progress_sentence(dag), failures_without_success(dag)
    if failed:
        evaluation.again_next_cycle()  # a job that does well moves nothing that is looked at
        progress += f"; {counted(failed, 'attempt')} failed, and no job has done well yet"
    if failed >= _ALERT_FAILED_ATTEMPTS:
        alert(evaluation.request, "all_failing", f"no job of DAG {dag.pk} has done well yet, {failed} attempts have failed")
    else:
        alert_over(evaluation, "all_failing")
    evaluation.note(waiting_for=progress)


def _ended(evaluation: Evaluation, dag: DAG) -> None:
    """The schedd answers and the DAG is not in its queue: prove the end, sweep once more, record it."""
    try:
        outcome = dag_outcome(dag)
    except ServiceUnavailable as error:
        evaluation.note(waiting_for=f"the schedd's history, to learn how the DAG ended: {error}")
        return
    swept = account_final(evaluation, dag, completed=outcome.status is DAGStatus.COMPLETED)
    if outcome.unproved and report_suspicion(evaluation, dag):
        return
    if outcome.status is None or not swept:
        with evaluation.fenced():
            dispute_note(dag, outcome)
        why = outcome.why if outcome.status is None else "neither a status file nor a rescue file says which units are done"
        evaluation.note(waiting_for=f"evidence of how DAGMan job {dag.dagman_cluster_id} ended: {why}")
        alert(evaluation.request, "outcome_unknown", f"DAG {dag.pk}: {why}")
        return
    _record_end(evaluation, dag, outcome)


def _confirmed_lost(evaluation: Evaluation, dag: DAG) -> None:
    """A person has confirmed the loss; a proof that came to light since then is worth more."""
    if dag.missing_since is not None and dag.unanswered_since is None:
        try:
            outcome = dag_outcome(dag)
        except ServiceUnavailable as error:
            log.info("history silent, the confirmation stands", dag_id=str(dag.pk), error=str(error))
        else:
            if outcome.status is not None:
                _ended(evaluation, dag)
                return
    end_lost(evaluation, dag)


def _record_end(evaluation: Evaluation, dag: DAG, outcome: Outcome) -> None:
    status = outcome.status or DAGStatus.REMOVED
    recorded = {"why": outcome.why, "aborted": outcome.aborted, **outcome.evidence}
    failures = site_failures(dag)
    with evaluation.fenced():
        dag_transition(dag, status, event="ended", detail={"why": outcome.why}, outcome=recorded)
        sites_judge(request=evaluation.request, failures=failures)
        if outcome.aborted:
            why = f"the DAG aborted itself (code 43): {outcome.why}"
            evaluation.hold(HoldCode.ABORT_CODE, why, recorded)
        elif status in (DAGStatus.REMOVED, DAGStatus.STOPPED):
            why = f"DAGMan job {dag.dagman_cluster_id} was removed: {outcome.why}"
            evaluation.hold(HoldCode.REMOVED, why, recorded)
        elif status in (DAGStatus.PARTIAL, DAGStatus.FAILED):
            evaluation.transition(S.PARTIAL, f"the DAG ended with failed work units: {outcome.why}", recorded)
    if status is DAGStatus.COMPLETED:
        waiting = unaccounted(dag)
        if waiting:
            alert(evaluation.request, "units_unaccounted", f"{len(waiting)} work units done but unaccounted, e.g. {waiting[0]}")
            evaluation.again_next_cycle()
        else:
            finish(evaluation)


def sites_judge(*, request: Request, failures: Mapping[str, SiteFailures]) -> list[str]:
    """Ban for this request the sites whose failures speak against them, and promote what others ban too; the sites banned.

    In the caller's transaction. What the guard refuses is not banned; the refusal is in the feed and the audit.
    """
    workflow, problems, banned = request.workflow, problem_sites(failures), []
    candidates = candidate_sites(workflow) if problems else frozenset[str]()
    objection = ban_objection(problems, candidates) if problems else ""
    for name, seen in problems.items():
        site = Site.objects.filter(name=name).first()
        if site is None:
            continue
        why = f"{seen.against_site} of {seen.attempts} attempts of {request.request_name} failed for the site's sake"
        ban = partial(site_ban, site=site, workflow_id=workflow.pk, reason=why, created_by=AUTOMATIC, candidates=candidates)
        if _automatic(BAN, request, site, why, partial(ban, failure_data=seen._asdict()), objection):
            banned.append(name)
            promote = partial(site_promote, site, partial(units_done_at, name))
            _automatic("site_ban_promote", request, site, "banned by several workflows", promote)
    return banned


def _automatic(action: str, request: Request, site: Site, why: str, act: Callable[[], object], objection: str = "") -> bool:
    try:
        if objection:
            raise InvalidTransition(objection)
        with transaction.atomic():
            made = act()
    except InvalidTransition as error:
        audit(actor=AUTOMATIC, action=action, target=site.name, target_type="site", reason=why, refused=True, why=str(error))
        emit_event("site.ban_refused", request, site=site.name, why=str(error))
        return False
    if made is None:
        return False
    audit(actor=AUTOMATIC, action=action, target=site.name, target_type="site", reason=why)
    emit_event("site.banned", request, site=site.name, why=why, by=action)
    return True
