"""One request's page: standing, units, rounds, blocks, effects, DAGs, history. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q
from django.db.models.fields.json import KT

from dags_app import live
from dags_app.counts import UnitCounts
from dags_app.dagman import NodeState, NodeStatus
from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitState
from dags_app.selectors import dag_live
from outputs_app.checks.validation.process import ValidationProgress, unvalidated, validation_progress
from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    BlockValidation,
    Drift,
    Effect,
    EffectState,
    IntegrityCase,
    OutputDataset,
)
from outputs_app.selectors import STUCK, drift_unsettled
from requests_app.harvesting.selectors import harvests_of
from requests_app.models import Harvest, KeptAccount, Request, RequestStatus, RequestTransition, Workflow
from requests_app.pages.errors import ErrorsOnPage, errors_on_page
from requests_app.pages.rounds import RoundsOnPage, rounds_on_page
from requests_app.selectors.account import account_of
from requests_app.selectors.admission import QueuedRow, queued_row
from requests_app.selectors.course import courses
from requests_app.selectors.explain import Explanation, explain
from requests_app.selectors.parts import SiteLeftovers, TroubledInput, leftovers_by_site, troubled_input
from requests_app.selectors.requests import names_about, workflow_of
from requests_app.selectors.workflows import WorkflowProgress, workflow_progress
from wms2.models import AuditEntry
from wms2.web.charts import Chart
from wms2.web.formatting import duration, word

#: Work units drawn one by one; the others are counted.
MOST_UNITS = 1_000
MOST_INPUT_FILES = 20
MOST_TRANSITIONS = 200
MOST_EFFECTS = 100
MOST_DRIFT = 50
MOST_AUDIT = 50
MOST_DAGS = 50
MOST_TROUBLES = 6
MOST_HARVESTS = 100
LOG_LINES = 40
#: Parts of the account, in words.
_PARTS = {
    "done": "done",
    "planned": "planned or running",
    "attempted": "tried, to be tried again",
    "excluded": "excluded",
    "refused": "refused",
    "inherited": "inherited",
    "left": "left",
}
_RUNNING = (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN)
_FAILED = (NodeState.ERROR, NodeState.FUTILE)


@dataclass(frozen=True, slots=True)
class UnitCell:
    """A work unit as it is drawn. ``look``: waiting, running, done, unaccounted, failing, failed or abandoned."""

    unit: WorkUnit
    look: str
    words: str


@dataclass(frozen=True, slots=True)
class DagView:
    """The newest DAG with what DAGMan writes now. ``nodes_problem``: why its status file says nothing."""

    dag: DAG
    is_live: bool
    nodes_problem: str
    log: live.LogTail


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line of the account; files only where there is an input, lumis where they are the unit of work.

    ``is_sum``: the others add up to it.
    """

    name: str
    events: int | None
    files: int | None
    lumis: int | None = None
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What exists once the request has a workflow. ``sites``: its units of each."""

    workflow: Workflow
    datasets: tuple[OutputDataset, ...]
    status_detail: WorkflowProgress
    account: KeptAccount
    rounds: RoundsOnPage | None
    sites: tuple[tuple[str, UnitCounts], ...]
    cells: tuple[UnitCell, ...]
    cells_left_out: int
    dag: DagView | None
    dags: tuple[DAG, ...]
    errors: ErrorsOnPage | None
    input: TroubledInput | None
    leftovers: tuple[SiteLeftovers, ...]
    harvests: tuple[Harvest, ...]
    validation: ValidationProgress | None
    unvalidated_since: datetime | None
    course: tuple[Chart, ...]

    @property
    def compared(self) -> list[OutputDataset]:
        """Datasets that are compared with DBS and Rucio."""
        return [dataset for dataset in self.datasets if hasattr(dataset, "comparison")]

    @property
    def troubled(self) -> list[tuple[str, str, int]]:
        """What is wrong with units, the same only once: in words, one of them by name, how many more."""
        found: dict[str, list[str]] = {}
        for cell in self.cells:
            if cell.look in ("unaccounted", "failing", "failed"):
                found.setdefault(cell.words, []).append(cell.unit.name)
        return [(words, names[0], len(names) - 1) for words, names in list(found.items())[:MOST_TROUBLES]]

    @property
    def ledger_lines(self) -> list[LedgerLine]:
        """The account as a table."""
        return _ledger_lines(self.account.numbers)


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Everything on one request's page. ``steps``: transitions, each with its status and how long the request stayed in that."""

    request: Request
    explanation: Explanation
    steps: tuple[tuple[RequestTransition, RequestStatus, str], ...]
    audit: tuple[AuditEntry, ...]
    effects: tuple[Effect, ...]
    effects_left_out: bool
    effects_by_state: Mapping[str, int]
    drift: tuple[Drift, ...]
    drift_number: int
    cases: int
    work: Work | None
    next_versions: tuple[str, ...]
    depends_on: list[str]
    dependents: list[str]
    turn: QueuedRow | None


def request_page(request: Request) -> RequestPage:
    """Count and read."""
    workflow = workflow_of(request)
    effects = list(_open_effects(request)[: MOST_EFFECTS + 1])
    unsettled = drift_unsettled(request.pk)
    drift = list(unsettled[: MOST_DRIFT + 1])
    names = names_about(request)
    of_request = AuditEntry.objects.filter(target_type="request", target=request.request_name)
    return RequestPage(
        request=request,
        explanation=explain(
            request, dag=dag_live(workflow.pk) if workflow and request.status == RequestStatus.STOPPING else None
        ),
        steps=_steps(request),
        audit=tuple(of_request.order_by("-id")[:MOST_AUDIT]),
        effects=tuple(effects[:MOST_EFFECTS]),
        effects_left_out=len(effects) > MOST_EFFECTS,
        effects_by_state=dict(
            Effect.objects.filter(request=request).order_by().values_list("state").annotate(number=Count("id"))
        ),
        drift=tuple(drift[:MOST_DRIFT]),
        drift_number=unsettled.count() if len(drift) > MOST_DRIFT else len(drift),
        cases=IntegrityCase.objects.filter(request=request, state__in=OPEN_CASE).count(),
        work=_work(request, workflow) if workflow else None,
        next_versions=tuple(
            Request.objects.filter(previous_version_request=request).order_by("created_at").values_list("request_name", flat=True)
        ),
        depends_on=names.depends_on,
        dependents=names.dependents,
        turn=queued_row(request),
    )


def _work(request: Request, workflow: Workflow) -> Work:
    rows = DAG.objects.select_related("round", "schedd").filter(workflow=workflow)
    dags = tuple(rows.order_by("-created_at", "-fence")[:MOST_DAGS])
    for dag in dags:
        dag.workflow = workflow
    status_detail = workflow_progress(workflow, dags[0] if dags else None)
    datasets = tuple(
        OutputDataset.objects.filter(workflow=workflow).select_related("comparison").defer("registration").order_by("name")
    )
    cells, left_out, problem = _cells(dags[0]) if dags else ((), 0, "")
    validating = BlockValidation.objects.filter(block__workflow=workflow).exists()
    return Work(
        workflow=workflow,
        datasets=datasets,
        status_detail=status_detail,
        account=account_of(request, workflow, status_detail.units),
        rounds=rounds_on_page(request, dags, status_detail.table, datasets),
        sites=tuple((site, units) for site, units in status_detail.table.counts_by("site") if site),
        cells=cells,
        cells_left_out=left_out,
        dag=_dag_view(dags[0], problem) if dags else None,
        dags=dags,
        errors=errors_on_page(request, workflow),
        input=troubled_input(request, most=MOST_INPUT_FILES) if workflow.input_dataset else None,
        leftovers=leftovers_by_site(request),
        harvests=harvests_of(request.request_name, MOST_HARVESTS),
        validation=validation_progress(workflow.pk) if validating else None,
        unvalidated_since=unvalidated(block__workflow=workflow)[1] if validating else None,
        course=courses(request),
    )


def _cells(dag: DAG) -> tuple[tuple[UnitCell, ...], int, str]:
    """Units of the newest round, those not done as DAGMan's status file has them; how many more; why that file says nothing."""
    units = list(WorkUnit.objects.filter(round_id=dag.round_id).order_by("index")[:MOST_UNITS])
    left_out = max(0, dag.total_work_units - len(units))
    if not dag.dagman_cluster_id:
        return tuple(_cell(unit, None) for unit in units), left_out, ""
    reading = live.outer_status(dag)
    nodes = {node.name: node for node in reading.status.nodes} if reading.status else {}
    if dag.status not in LIVE_DAG:  # the file may say running, but nothing runs
        nodes = {name: node for name, node in nodes.items() if node.state in _FAILED}
    problem = reading.problem if dag.status in LIVE_DAG else ""
    return tuple(_cell(unit, nodes.get(unit.name)) for unit in units), left_out, problem


def _cell(unit: WorkUnit, node: NodeStatus | None) -> UnitCell:
    look, words = _check(unit, node)
    return UnitCell(unit, look, f"{words} at {unit.site}" if unit.site else words)


def _check(unit: WorkUnit, node: NodeStatus | None) -> tuple[str, str]:
    if unit.state == WorkUnitState.DONE:
        return "done", "done"
    if unit.state == WorkUnitState.DONE_UNACCOUNTED:
        return "unaccounted", f"done, unaccounted: {unit.problem}"
    if unit.state == WorkUnitState.FAILED:
        return "failed", f"failed: {unit.problem}" if unit.problem else "failed"
    if unit.state == WorkUnitState.ABANDONED:
        return "abandoned", "abandoned"
    if node is None or node.state in (NodeState.NOT_READY, NodeState.READY):
        return "waiting", "waiting"
    if node.was_removed:
        return "waiting", "was removed from the queue, and waits for the DAG's next submission"
    if node.state in _FAILED:
        cause = unit.problem or node.details
        return "failing", f"failed in this DAG: {cause}" if cause else "failed in this DAG"
    return "running", "running" if node.state in _RUNNING else "done, being accounted"


def _dag_view(dag: DAG, nodes_problem: str) -> DagView:
    return DagView(dag, dag.status in LIVE_DAG, nodes_problem, live.dagman_log_tail(dag, unit=None, lines=LOG_LINES))


def _steps(request: Request) -> tuple[tuple[RequestTransition, RequestStatus, str], ...]:
    """Newest first."""
    rows = list(RequestTransition.objects.filter(request=request).order_by("-id")[:MOST_TRANSITIONS])
    later = [None, *rows]
    return tuple(
        (row, word(RequestStatus, row.to_status), duration((after.at - row.at).total_seconds()) if after else "")
        for row, after in zip(rows, later, strict=False)
    )


def _ledger_line(name: str, part: str, numbers: Mapping[str, Any], *, is_sum: bool = False) -> LedgerLine:
    return LedgerLine(name, numbers.get(f"{part}_events"), numbers.get(f"{part}_files"), numbers.get(f"{part}_lumis"), is_sum)


def _ledger_lines(numbers: Mapping[str, Any]) -> list[LedgerLine]:
    if not numbers:
        return []
    lines = {part: _ledger_line(name, part, numbers) for part, name in _PARTS.items()}
    others, generated = lines["inherited"], not numbers["all_files"]
    if generated:
        del lines["inherited"]
    shown = [line for line in lines.values() if line.events or line.files or line.lumis or line.name in ("done", "left")]
    lost = numbers["lost_events"]
    after = [LedgerLine("lost numbers, never made again", lost, None)] if lost else []
    after += [others] if generated and others.events else []
    return [*shown, _ledger_line("asked for", "all", numbers, is_sum=True), *after]


def _open_effects(request: Request) -> Any:
    """Those that need an operator first, then by their next attempt; those that were discarded last."""
    return (
        Effect.objects.filter(request=request, state__in=(*OPEN_EFFECT, EffectState.DISCARDED))
        .select_related("block")
        .annotate(part_done=KT("result__done"), part_of=KT("result__of"))
        .defer("payload", "result", "block__failure_context")
        .alias(stuck=Q(state__in=STUCK), over=Q(state=EffectState.DISCARDED))
        .order_by("over", "-stuck", "next_attempt_at", "id")
    )
