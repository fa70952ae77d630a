"""PARTIAL: rescue below the threshold, otherwise hold (error-handling 3.2; FAILED is never set here)."""

from __future__ import annotations

from typing import Any

from dags_app.models import WorkUnit, WorkUnitState
from dags_app.services.site_failures import failure_summary, site_attempts
from requests_app.evaluation import Evaluation
from requests_app.models import HoldCode, RequestStatus, Round, Workflow
from requests_app.overrides import hold_threshold, max_rescues
from requests_app.rounds import failure_rescues, round_open
from requests_app.services.sites import sites_judge
from requests_app.states import hold_changes
from sites_app.bans import SiteFailures

S = RequestStatus
#: In ``Round.metrics``: what the sites had been judged by.
_JUDGED = "sites_judged"


def handle_partial(evaluation: Evaluation) -> None:
    """Failed units over the round's units against the threshold; rescues since the last release against the maximum."""
    round_ = round_open(evaluation.request.workflow)
    units = WorkUnit.objects.filter(round=round_)
    total, failed = units.count(), units.exclude(state=WorkUnitState.DONE).count()
    rescues = failure_rescues(evaluation, round_) if round_ else 0
    banned = _judge_sites(evaluation, round_) if round_ else []
    summary = failure_summary(evaluation.request.workflow.pk)
    threshold, most = hold_threshold(evaluation.request), max_rescues(evaluation.request)
    evidence: dict[str, Any] = {"work_units": total, "failed": failed, "rescues": rescues, "threshold": threshold, "max_rescues": most}
    evidence |= {"banned_sites": banned, "failures": summary}
    if total and failed / total >= threshold:
        why = _with(f"{failed} of {total} work units failed, the threshold is {threshold:.0%}", summary)
        evaluation.transition(S.HELD, why, evidence, **hold_changes(HoldCode.THRESHOLD, why))
    elif rescues >= most:
        why = _with(f"{failed} of {total} work units still failed after {rescues} rescues", summary)
        evaluation.transition(S.HELD, why, evidence, **hold_changes(HoldCode.RESCUES, why))
    else:
        evaluation.transition(S.PLANNING, f"rescue {rescues + 1} of {most}: {failed} of {total} work units failed", evidence)


def _with(why: str, summary: str) -> str:
    return f"{why}; {summary}" if summary else why


def _judge_sites(evaluation: Evaluation, round_: Round) -> list[str]:
    """Ban sites by what has happened since the last judgement, so that a ban that was lifted does not come back by itself."""
    workflow = evaluation.request.workflow
    attempts = site_attempts(workflow.pk)
    judged = _judged(workflow)
    since = {
        site: SiteFailures(number - judged.get(site, (0, 0))[0], bad - judged.get(site, (0, 0))[1])
        for site, (number, bad) in attempts.items()
    }
    with evaluation.fenced():
        banned = sites_judge(request=evaluation.request, failures=since)
        round_.metrics = {**(round_.metrics or {}), _JUDGED: {site: list(seen) for site, seen in attempts.items()}}
        round_.save(update_fields=["metrics"])
    return banned


def _judged(workflow: Workflow) -> dict[str, tuple[int, int]]:
    rows = workflow.rounds.filter(metrics__has_key=_JUDGED).order_by("-index").values_list("metrics", flat=True)
    last = rows.first() or {_JUDGED: {}}
    return {site: (seen[0], seen[1]) for site, seen in last[_JUDGED].items()}
