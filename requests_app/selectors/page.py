"""One request's page: standing, units of the newest round, blocks, effects, DAGs, history. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q

from dags_app import live
from dags_app.dagman import NodeState
from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitState
from outputs_app.models import OPEN_EFFECT, Effect, EffectState
from requests_app.explain import Explanation, explain
from requests_app.models import AuditEntry, Request, RequestTransition, Workflow
from requests_app.selectors.account import Account, account_of
from requests_app.selectors.workflows import WorkflowStanding, workflow_standing

#: Work units drawn one by one; the others are counted.
MOST_UNITS = 1_000
MOST_TRANSITIONS = 200
MOST_EFFECTS = 100
MOST_AUDIT = 50
MOST_DAGS = 50
LOG_LINES = 40
_RUNNING = (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN)


@dataclass(frozen=True, slots=True)
class UnitCell:
    """A work unit as it is drawn. ``look``: waiting, running, done, unaccounted, failing, failed or abandoned."""

    unit: WorkUnit
    look: str
    words: str


@dataclass(frozen=True, slots=True)
class CountRow:
    """Work units by state, of a round or a site."""

    name: str
    planned: int
    done: int
    unaccounted: int
    failed: int


@dataclass(frozen=True, slots=True)
class DagView:
    """The newest DAG with what DAGMan writes now. ``nodes_problem``: why its status file says nothing."""

    dag: DAG
    live: bool
    nodes_problem: str
    log: live.LogTail


@dataclass(frozen=True, slots=True)
class Work:
    """What exists once the request has a workflow."""

    workflow: Workflow
    standing: WorkflowStanding
    account: Account
    rounds: tuple[CountRow, ...]
    sites: tuple[CountRow, ...]
    cells: tuple[UnitCell, ...]
    cells_left_out: int
    dag: DagView | None
    dags: tuple[DAG, ...]


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Everything on one request's page."""

    request: Request
    explanation: Explanation
    transitions: tuple[RequestTransition, ...]
    audit: tuple[AuditEntry, ...]
    effects: tuple[Effect, ...]
    effects_left_out: bool
    effects_by_state: Mapping[str, int]
    work: Work | None
    next_versions: tuple[str, ...]


def request_page(request: Request) -> RequestPage:
    """Count and read."""
    workflow = Workflow.objects.defer("psets", "step_metrics").filter(request_id=request.request_name).first()
    effects = list(_open_effects(request)[: MOST_EFFECTS + 1])
    of_request = AuditEntry.objects.filter(target_type="request", target=request.request_name)
    return RequestPage(
        request=request,
        explanation=explain(request),
        transitions=tuple(RequestTransition.objects.filter(request=request).order_by("-id")[:MOST_TRANSITIONS]),
        audit=tuple(of_request.order_by("-id")[:MOST_AUDIT]),
        effects=tuple(effects[:MOST_EFFECTS]),
        effects_left_out=len(effects) > MOST_EFFECTS,
        effects_by_state=_effects_by_state(request),
        work=_work(workflow) if workflow else None,
        next_versions=tuple(
            Request.objects.filter(previous_version_request=request).order_by("created_at").values_list("request_name", flat=True)
        ),
    )


def _work(workflow: Workflow) -> Work:
    standing = workflow_standing(workflow)
    cells, left_out, problem = _cells(standing.dag)
    return Work(
        workflow=workflow,
        standing=standing,
        account=account_of(workflow),
        rounds=_rounds(workflow),
        sites=_sites(workflow),
        cells=cells,
        cells_left_out=left_out,
        dag=_dag_view(standing.dag, problem),
        dags=tuple(DAG.objects.select_related("round").filter(workflow=workflow).order_by("-created_at")[:MOST_DAGS]),
    )


def _cells(dag: DAG | None) -> tuple[tuple[UnitCell, ...], int, str]:
    """Units of the newest round; for a live DAG, those not done as DAGMan's status file has them."""
    if dag is None:
        return (), 0, ""
    units = list(WorkUnit.objects.filter(round_id=dag.round_id).order_by("index")[:MOST_UNITS])
    left_out = max(0, dag.total_work_units - len(units))
    if dag.status not in LIVE_DAG or not dag.dagman_cluster_id:
        return tuple(_cell(unit, None) for unit in units), left_out, ""
    reading = live.outer_status(dag)
    nodes = {node.name: node.state for node in reading.status.nodes} if reading.status else {}
    return tuple(_cell(unit, nodes.get(unit.name)) for unit in units), left_out, reading.problem


def _cell(unit: WorkUnit, node: NodeState | None) -> UnitCell:
    look, words = _look(unit, node)
    return UnitCell(unit, look, f"{words} at {unit.site}" if unit.site else words)


def _look(unit: WorkUnit, node: NodeState | None) -> tuple[str, str]:
    if unit.state == WorkUnitState.DONE:
        return "done", "done"
    if unit.state == WorkUnitState.DONE_UNACCOUNTED:
        return "unaccounted", f"done, unaccounted: {unit.problem}"
    if unit.state == WorkUnitState.FAILED:
        return "failed", f"failed: {unit.problem}" if unit.problem else "failed"
    if unit.state == WorkUnitState.ABANDONED:
        return "abandoned", "abandoned"
    if node in _RUNNING:
        return "running", "running"
    if node is NodeState.DONE:
        return "running", "done, being accounted"
    if node in (NodeState.ERROR, NodeState.FUTILE):
        return "failing", "failed in this DAG"
    return "waiting", "waiting"


def _dag_view(dag: DAG | None, nodes_problem: str) -> DagView | None:
    if dag is None:
        return None
    tail = live.dagman_log_tail(dag, unit=None, lines=LOG_LINES)
    return DagView(dag, dag.status in LIVE_DAG, nodes_problem, tail)


def _numbers() -> dict[str, Any]:
    def of(*states: WorkUnitState) -> Count:
        return Count("id", filter=Q(state__in=states))

    return {
        "planned": of(WorkUnitState.PLANNED),
        "done": of(WorkUnitState.DONE),
        "unaccounted": of(WorkUnitState.DONE_UNACCOUNTED),
        "failed": of(WorkUnitState.FAILED, WorkUnitState.ABANDONED),
    }


def _rounds(workflow: Workflow) -> tuple[CountRow, ...]:
    rows = WorkUnit.objects.filter(workflow=workflow).order_by("round__index").values("round__index").annotate(**_numbers())
    return tuple(CountRow(name=f"round {row.pop('round__index')}", **row) for row in rows)


def _sites(workflow: Workflow) -> tuple[CountRow, ...]:
    rows = WorkUnit.objects.filter(workflow=workflow).exclude(site="").order_by("site").values("site").annotate(**_numbers())
    return tuple(CountRow(name=row.pop("site"), **row) for row in rows)


def _open_effects(request: Request) -> Any:
    """Those that need somebody first, then by their next attempt."""
    return (
        Effect.objects.filter(request=request, state__in=OPEN_EFFECT)
        .select_related("block")
        .defer("payload", "result", "block__failure_context")
        .alias(stuck=Q(state__in=(EffectState.REFUSED, EffectState.DEAD)))
        .order_by("-stuck", "next_attempt_at", "id")
    )


def _effects_by_state(request: Request) -> dict[str, int]:
    rows = Effect.objects.filter(request=request).order_by().values_list("state").annotate(number=Count("id"))
    return dict(rows)
