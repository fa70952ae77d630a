"""What a verb would do to requests, told before it is done: sentences for the page that asks for confirmation."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dags_app.counts import UnitCounts, unit_counts
from dags_app.models import DAG, LIVE_DAG
from requests_app.models import Request, RequestStatus, StopIntent, Workflow
from requests_app.states import allowed
from wms2.words import counted

S = RequestStatus


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
    return {request.pk: _release(facts) for request, facts in _with_facts(requests)}


def abort(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """End for good."""
    return {request.pk: _abort(request, facts) for request, facts in _with_facts(requests)}


def priority(requests: Sequence[Request]) -> dict[uuid.UUID, list[str]]:
    """Another place in the queue."""
    return {request.pk: [f"Its priority is {request.priority} now.", *_priority(request)] for request in requests}


def why_not_submit(request: Request) -> str:
    """Empty if it can be submitted."""
    return "" if request.status == S.NEW else f"It is {request.get_status_display()}; only a new request can be submitted."


def why_not_hold(request: Request) -> str:
    """Empty if it can be held."""
    if request.status == S.HELD:
        return "It is held already."
    if request.status == S.STOPPING:
        intent = StopIntent(request.stop_intent)
        return "" if intent.strength < StopIntent.HOLD.strength else f"It is being stopped already: {intent.label.lower()}."
    if allowed(request.status, S.HELD) or allowed(request.status, S.STOPPING):
        return ""
    return f"It is {request.get_status_display()}; that cannot be held."


def why_not_release(request: Request) -> str:
    """Empty if it can be released."""
    return "" if request.status == S.HELD else f"It is {request.get_status_display()}; only a held request can be released."


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


def _release(facts: Facts) -> list[str]:
    if not facts.inputs_read:
        return ["Its inputs are read again; then it is queued."]
    return ["It is queued and goes on when its turn has come.", *_kept(facts)]


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
    return ["It counts when the request is queued next; jobs that run now keep theirs."]
