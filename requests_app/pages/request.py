"""One request's page: standing, units, rounds, blocks, effects, DAGs, history. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Min
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from dags_app import live
from dags_app.counts import UnitCounts
from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import dag_live
from outputs_app.checks.validation.process import ValidationProgress, blocks_unvalidated, validation_progress
from outputs_app.models import Drift, Effect, OutputDataset
from outputs_app.selectors import drift_unsettled
from requests_app.models import TERMINAL, Harvest, KeptAccount, Request, RequestStatus, Workflow
from requests_app.pages.cached import cached
from requests_app.pages.errors import ErrorsOnPage, errors_on_page
from requests_app.pages.rounds import RoundsOnPage, rounds_on_page
from requests_app.pages.timeline import TimelineEntry, timeline
from requests_app.pages.units import UnitCell, unit_cells
from requests_app.selectors.account import account_of
from requests_app.selectors.admission import QueuedRow, queued_row
from requests_app.selectors.explain import Explanation, explain
from requests_app.selectors.lifecycle import LifecycleState, lifecycle_of
from requests_app.selectors.missing_lumis import MissingNumber, missing_number
from requests_app.selectors.parts import SiteLeftovers, TroubledInput, leftovers_by_site, troubled_input
from requests_app.selectors.progress_charts import progress_charts
from requests_app.selectors.request_rows import MOST_DRIFT, MOST_EFFECTS, Rows, request_rows, unit_table_of
from requests_app.selectors.requests import workflow_of
from requests_app.selectors.workflows import WorkflowProgress, progress_of
from wms2.work.workers import PoolProblem, problems_of

MOST_INPUT_FILES = 20
MOST_TROUBLES = 6
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
    """What exists once the request has a workflow. ``sites``: its units of each.

    ``dag``: the newest; ``nodes_problem``: why its status file says nothing; ``log``: what DAGMan writes now.
    """

    workflow: Workflow
    datasets: tuple[OutputDataset, ...]
    missing: tuple[MissingNumber, ...]
    status_detail: WorkflowProgress
    account: KeptAccount
    rounds: RoundsOnPage | None
    sites: tuple[tuple[str, UnitCounts], ...]
    cells: tuple[UnitCell, ...]
    cells_left_out: int
    dag: DAG | None
    dag_is_live: bool
    nodes_problem: str
    log: live.LogTail | None
    dags: tuple[DAG, ...]
    errors: ErrorsOnPage | None
    input: TroubledInput | None
    leftovers: tuple[SiteLeftovers, ...]
    harvests: tuple[Harvest, ...]
    validation: ValidationProgress | None
    unvalidated_since: datetime | None
    charts: Sequence[SafeString]

    @property
    def compared(self) -> list[OutputDataset]:
        """Datasets that are compared with DBS and Rucio."""
        return [dataset for dataset in self.datasets if hasattr(dataset, "comparison")]

    @property
    def troubled(self) -> list[tuple[str, str, int]]:
        """What is wrong with units, the same only once: in words, one of them by name, how many more."""
        found: dict[str, list[str]] = {}
        for cell in self.cells:
            if cell.state in ("unaccounted", "failing", "failed"):
                found.setdefault(cell.words, []).append(cell.unit.name)
        return [(words, names[0], len(names) - 1) for words, names in list(found.items())[:MOST_TROUBLES]]

    @property
    def ledger_lines(self) -> list[LedgerLine]:
        """The account as a table."""
        return _ledger_lines(self.account.numbers)


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Everything on one request's page. ``timeline``: what happened, newest first."""

    request: Request
    explanation: Explanation
    timeline: tuple[TimelineEntry, ...]
    effects: tuple[Effect, ...]
    effects_left_out: bool
    effects_by_state: Mapping[str, int]
    drift: tuple[Drift, ...]
    drift_number: int
    cases: int
    work: Work | None
    next_versions: tuple[str, ...]
    depends_on: tuple[str, ...]
    dependents: tuple[str, ...]
    queued: QueuedRow | None
    lifecycle: LifecycleState
    worker_pools: list[PoolProblem]


def request_page(request: Request) -> RequestPage:
    """Count and read."""
    workflow = workflow_of(request)
    rows = request_rows(request, workflow)
    effects, drift = rows["effects"], rows["drift"]
    work = _work(request, workflow, rows) if workflow else None
    return RequestPage(
        request=request,
        explanation=explain(
            request, dag=dag_live(workflow.pk) if workflow and request.status == RequestStatus.STOPPING else None
        ),
        timeline=timeline(rows["transitions"], work.dags if work else (), rows["audit"]),
        effects=tuple(effects[:MOST_EFFECTS]),
        effects_left_out=len(effects) > MOST_EFFECTS,
        effects_by_state={row["state"]: row["number"] for row in rows["effect_states"]},
        drift=tuple(drift[:MOST_DRIFT]),
        drift_number=drift_unsettled(request.pk).count() if len(drift) > MOST_DRIFT else len(drift),
        cases=sum(row["number"] for row in rows["cases"]),
        work=work,
        next_versions=_names(rows["next_versions"]),
        depends_on=_names(rows["depends_on"]),
        dependents=_names(rows["dependents"]),
        queued=queued_row(request),
        lifecycle=lifecycle_of(next(iter(rows["leases"]), None)),
        worker_pools=[] if request.status in TERMINAL else problems_of(rows["pools"], rows["workers"]),
    )


def _names(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(row["request_name"] for row in rows)


def _work(request: Request, workflow: Workflow, rows: Rows) -> Work:
    dags, datasets, validating = tuple(rows["dags"]), tuple(rows["datasets"]), bool(rows["validations"])
    done = {row["block_id"]: row["number"] for row in rows["units_done"]}
    dag = dags[0] if dags else None
    status_detail = progress_of(workflow, dag, unit_table_of(workflow, rows), rows["blocks"], done)
    cells, left_out, problem = unit_cells(dag) if dag else ((), 0, "")
    account, unvalidated = account_of(request, workflow, status_detail.units), blocks_unvalidated(block__workflow=workflow)
    return Work(
        workflow=workflow,
        datasets=datasets,
        missing=tuple(missing_number(request, workflow, account, dataset) for dataset in datasets),
        status_detail=status_detail,
        account=account,
        rounds=rounds_on_page(request, dags, status_detail.table, datasets, rows),
        sites=tuple((site, units) for site, units in status_detail.table.counts_by("site") if site),
        cells=cells,
        cells_left_out=left_out,
        dag=dag,
        dag_is_live=dag is not None and dag.status in LIVE_DAG,
        nodes_problem=problem,
        log=live.dagman_log_tail(dag, unit=None, lines=LOG_LINES) if dag else None,
        dags=dags,
        errors=errors_on_page(request, workflow, rows),
        input=troubled_input(request, most=MOST_INPUT_FILES) if workflow.input_dataset else None,
        leftovers=leftovers_by_site(request, rows["leftovers"]),
        harvests=tuple(rows["harvests"]),
        validation=validation_progress(workflow.pk) if validating else None,
        unvalidated_since=unvalidated.aggregate(first=Min("asked_at"))["first"] if validating else None,
        charts=_charts(request, rows),
    )


def _charts(request: Request, rows: Rows) -> Sequence[SafeString]:
    """Drawn once in a while for all readers, and anew with each round and stop."""

    def draw() -> list[SafeString]:
        charts = progress_charts(request, rows["rounds"], rows["stops"])
        return [render_to_string("parts/chart.html", {"chart": chart}) for chart in charts]

    newest = [*(row.index for row in rows["rounds"][:1]), *(row["at"] for row in rows["stops"][:1])]
    return cached(("course", request.pk, *newest), draw)


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
