"""What a verb would do to requests, told before it is done: sentences for the page that asks for confirmation."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dags_app.counts import UnitCounts, unit_counts
from dags_app.models import DAG, LIVE_DAG
from requests_app.models import CleanupPolicy, Request, RequestStatus, StopIntent, Workflow
from requests_app.services.acting import may_run
from requests_app.services.invalidation import invalidation_refused, manifest_of
from requests_app.services.release import ReleaseMode, release_plan
from requests_app.services.restart import successor_name
from requests_app.services.verbs import submit_refused
from requests_app.states import allowed
from wms2.errors import InvalidTransition
from wms2.words import counted

S = RequestStatus
_WAYS = {ReleaseMode.RESCUE: "rescue", ReleaseMode.NEXT_ROUND: "next round"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What stands behind a request: its live DAG, its work units, whether its inputs are read."""

    dag: DAG | None = None
    units: UnitCounts = field(default_factory=UnitCounts)
    inputs_read: bool = False

    @property
    def running(self) -> bool:
        """Whether a DAG is live."""
        return self.dag is not None


def facts_of(requests: Sequence[Request]) -> Mapping[str, Facts]:
    """By request name; three queries for all."""
    names = [request.request_name for request in requests]
    rows = Workflow.objects.filter(request_id__in=names).only("pk", "request_id", "input_dataset", "input_imported_at")
    workflows = {row.pk: row for row in rows}
    dags = {dag.workflow_id: dag for dag in DAG.objects.filter(workflow_id__in=workflows, status__in=LIVE_DAG)}
    counts = unit_counts(workflows)
    return {
        row.request_id: Facts(dags.get(key), counts[key], bool(row.input_imported_at or not row.input_dataset))
        for key, row in workflows.items()
    }


def submit(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """NEW goes on its way."""
    return {request.pk: ["It is submitted: its inputs are read, then it is queued."] for request in requests}


def hold(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Put aside, a running DAG stopped first."""
    return {request.pk: _hold(request, facts) for request, facts in _with_facts(requests)}


def release(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Let a held one go on."""
    return {request.pk: _release(request, facts) for request, facts in _with_facts(requests)}


def stop(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Stop what runs, and go on later."""
    return {request.pk: _stop(facts) for request, facts in _with_facts(requests)}


def fail(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """The end, by a person's word."""
    return {request.pk: [*_first_stopped(facts), *_failed(facts)] for request, facts in _with_facts(requests)}


def restart(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Kill and clone."""
    return {request.pk: [*_first_stopped(facts), *_restarted(request, facts)] for request, facts in _with_facts(requests)}


def invalidate(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Take outputs back."""
    return {request.pk: _invalidated(request) for request in requests}


def abort(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """End for good."""
    return {request.pk: _abort(request, facts) for request, facts in _with_facts(requests)}


def priority(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Another place in the queue."""
    return {request.pk: [f"Its priority is {request.priority} now.", *_priority(request)] for request in requests}


def why_not_submit(request: Request) -> str:
    """Empty if it can be submitted."""
    return submit_refused(request)


def why_not_hold(request: Request) -> str:
    """Empty if it can be held."""
    if request.status == S.HELD:
        return "It is held already."
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        return "" if intent.goes_on else f"It is being stopped already: {intent.label.lower()}."
    if allowed(request.status, S.HELD) or allowed(request.status, S.STOPPING):
        return ""
    return f"It is {request.get_status_display()}; that cannot be held."


def why_not_release(request: Request) -> str:
    """Empty if it can be released."""
    return "" if request.status == S.HELD else f"It is {request.get_status_display()}; only a held request can be released."


def why_not_stop(request: Request) -> str:
    """Empty if there is something to stop."""
    if request.status == S.STOPPING:
        return ""
    return "" if may_run(request) else f"It is {request.get_status_display()}; no DAG of it runs."


def why_not_fail(request: Request) -> str:
    """Empty if it can be failed."""
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        return "" if intent.strength < StopIntent.FAIL.strength else f"It is being stopped already: {intent.label.lower()}."
    if allowed(request.status, S.FAILED) or may_run(request):
        return ""
    return f"It is {request.get_status_display()}; it can be failed when it is held or runs."


def why_not_invalidate(request: Request) -> str:
    """Empty if its outputs may be taken back."""
    why = invalidation_refused(request)
    return f"{why[0].upper()}{why[1:]}." if why else ""


def why_not_abort(request: Request) -> str:
    """Empty if it can be aborted."""
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        return "" if intent.strength < StopIntent.ABORT.strength else f"It is being stopped already: {intent.label.lower()}."
    if allowed(request.status, S.ABORTED) or allowed(request.status, S.STOPPING):
        return ""
    return f"It is {request.get_status_display()}; it has ended."


def why_not_priority(request: Request) -> str:
    """Empty if a priority still means something."""
    ended = not (allowed(request.status, S.ABORTED) or allowed(request.status, S.STOPPING) or request.status == S.STOPPING)
    return f"It is {request.get_status_display()}; nothing more is planned." if ended else ""


def _with_facts(requests: Sequence[Request]) -> list[tuple[Request, Facts]]:
    found = facts_of(requests)
    return [(request, found.get(request.request_name, Facts())) for request in requests]


def _hold(request: Request, facts: Facts) -> list[str]:
    if request.status == S.STOPPING:
        return ["It is being stopped already; it will be held instead of going on."]
    if request.status in (S.ACTIVE, S.PLANNING) and facts.running:
        return [*_dag_removed(facts), "Once that is proved, it is held; a release goes on from the rescue file."]
    return ["It is held at once.", *_kept(facts)]


def _release(request: Request, facts: Facts) -> list[str]:
    if not facts.inputs_read:
        return ["Its inputs are read again; then it is queued."]
    told = ["It is queued and goes on when its turn has come.", *_kept(facts)]
    plan = release_plan(request)
    if plan.mode is None:
        return told
    return [*told, f"Without a mode: {_WAYS[plan.mode]}, because {plan.why}.", *(_way(request, mode) for mode in ReleaseMode)]


def _way(request: Request, mode: ReleaseMode) -> str:
    """What a mode would do, or why it is impossible."""
    label = _WAYS[mode]
    try:
        plan = release_plan(request, mode)
    except InvalidTransition as error:
        return f"{label[0].upper()}{label[1:]}: not possible; {error}."
    again = counted(plan.units_again, "work unit")
    if mode is ReleaseMode.RESCUE:
        return f"Rescue: {again} run again in the same DAG, each from where it stood."
    return f"Next round: what {again} had to do is planned anew, under the settings in force then."


def _stop(facts: Facts) -> list[str]:
    if facts.dag is None:
        return ["Its DAG, if one is found, is removed; then it is queued again."]
    now = "Now: the DAG is removed, jobs that run are lost. Drain: work units that run finish, no other starts."
    return [now, "Then it is queued again and goes on from its rescue file.", *_kept(facts)]


def _first_stopped(facts: Facts) -> list[str]:
    return [*_dag_removed(facts), "Once that is proved:"] if facts.running else []


def _failed(facts: Facts) -> list[str]:
    return [
        "It is failed; what is not done is given up. It cannot be taken back.",
        "Its blocks and rules are listed in an invalidation manifest; they stay until somebody invalidates them.",
    ]


def _restarted(request: Request, facts: Facts) -> list[str]:
    if request.cleanup_policy == CleanupPolicy.IMMEDIATE_CLEANUP:
        fate = "are invalidated once the new version is complete"
    else:
        fate = "stay; once the new version is complete they count as superseded"
    return [
        f"It is failed, and {successor_name(request)} begins from nothing, with every processing version one higher.",
        f"Its outputs {fate}, unless another policy is chosen below.",
    ]


def _invalidated(request: Request) -> list[str]:
    if invalidation_refused(request):
        return []
    totals = manifest_of(request)["totals"]
    return [
        f"{counted(totals['rules'], 'rule')} of {counted(totals['blocks'], 'block')} in {counted(totals['datasets'], 'dataset')}"
        " are deleted, then the files and datasets become INVALID in DBS.",
        "It cannot be taken back: Rucio may remove the files from an hour on.",
    ]


def _abort(request: Request, facts: Facts) -> list[str]:
    last = "It cannot be taken back; the document can be imported again under another name."
    if facts.running or request.status in (S.ACTIVE, S.STOPPING):
        return [*_dag_removed(facts), "Once that is proved, it is aborted; what is not done is given up.", last]
    given_up = ["What is not done is given up."] if facts.units.planned else []
    return ["It is aborted at once.", *_kept(facts), *given_up, last]


def _dag_removed(facts: Facts) -> list[str]:
    if facts.dag is None:
        return ["Its DAG, if one is found, is removed."]
    cluster = facts.dag.dagman_cluster_id
    where = f"DAGMan job {cluster} at {facts.dag.schedd_name}" if cluster else "its submission is not recorded yet"
    return [f"Its DAG is removed ({where}); jobs that run now are lost.", *_kept(facts)]


def _kept(facts: Facts) -> list[str]:
    units = facts.units
    if not units.total:
        return []
    return [f"{units.done} of {counted(units.total, 'work unit')} are done and stay registered."]


def _priority(request: Request) -> list[str]:
    if request.status == S.QUEUED:
        return ["Its place in the queue changes at once."]
    return ["It counts at once for its jobs in the queue of the schedd; running jobs go on."]
