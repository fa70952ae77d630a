"""The part *Rounds* of a request's page: round against round, why the newest DAG is sized as it is, and what steps measured.

At a bounded cost: of the newest rounds, from their few rows of measurements (docs/adr/0009). Memory in MB, times in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dags_app.counts import UnitCounts, UnitTable
from dags_app.histogram import added, quantile
from dags_app.models import DAG, SizingDecision
from dags_app.planning.levels import FIRST_TASK
from dags_app.planning.measured import TARGET_WALL_SECONDS, Spread
from dags_app.planning.specs import ResourceSpec
from outputs_app.models import OutputDataset
from requests_app.models import Request
from requests_app.selectors.request_rows import Rows
from requests_app.selectors.rounds import MeasuredRound, StepDetail, measured_of
from requests_app.work.sizing import as_planned
from wms2.runtime.grouping import grouped
from wms2.web.formatting import number, size

#: The newest of each.
MOST_ROUNDS, MOST_STEPS = 10, 40
#: Of what was asked; below it a slot is wasted.
_LITTLE = 0.5

#: ``Decision.what`` -> in words, unit of the numbers, unit of what was measured for it.
_DECIDED: Mapping[str, tuple[str, str, str]] = {
    "cores": ("cores of a job", "", "cores busy"),
    "memory_mb": ("memory of a job", "MB", "MB"),
    "time_per_event_seconds": ("time per event", "s", "s"),
    "size_per_event_kb": ("disk per event", "KB", "KB"),
    "events_per_job": ("events per job", "", "s per event"),
    "lumis_per_job": ("lumis per job", "", "events per lumi"),
    "files_per_job": ("files per job", "", "events per file"),
    "events_per_lumi": ("events per lumi", "", "pass the filters"),
    "filter_efficiency": ("filter efficiency", "", ""),
    "jobs_per_work_unit": ("jobs per work unit", "", "a job"),
    "processes": ("processes side by side", "", "MB"),
    "threads": ("threads of each process", "", "of the cores busy"),
}


@dataclass(frozen=True, slots=True)
class RoundLine:
    """One round beside the others; what is not known yet is None. ``rss_mb``: p95 of ``rss_step``, which takes most.

    ``job``: wall of a job, its steps added up. ``merged_bytes``: of a work unit, in its largest dataset. ``efficiency``: CPU time
    over the time of all cores that jobs had; ``events_per_core_hour`` likewise.
    """

    index: int
    units: UnitCounts
    jobs: int
    cores: int
    memory_mb: int
    events_per_job: int
    rss_mb: float | None
    rss_step: str
    job: Spread | None
    merged_bytes: float | None
    efficiency: float | None
    events_per_core_hour: float | None


class Used(NamedTuple):
    """What was asked for, and what was used of it."""

    asked: float
    used: float

    @property
    def share(self) -> float | None:
        """Used of asked."""
        return self.used / self.asked if self.asked else None

    @property
    def colour(self) -> str:
        """``bad``: more than was asked; ``waiting``: less than half of it."""
        share = self.share
        return "" if share is None else "bad" if share > 1 else "waiting" if share < _LITTLE else ""


class StepLine(NamedTuple):
    """A step over the jobs of a round that ran it alike; ``passes`` the filter, ``sizes`` in bytes per event read, by tier.

    ``codes``: of its failed attempts in the round, however it ran, with their number. ``asked``: of the slot, for its task.
    """

    round_index: int
    step: StepDetail
    passes: float
    sizes: tuple[tuple[str, float], ...]
    codes: tuple[tuple[str, int], ...]
    asked: ResourceSpec

    @property
    def memory_used(self) -> Used | None:
        """p95 of what its jobs took of the memory asked for."""
        spread = self.step.spreads.get("slot_rss_mb")
        return Used(self.asked.memory_mb, spread.p95) if spread else None

    @property
    def cores_used(self) -> Used | None:
        """Cores that were busy, on average over all its jobs."""
        wall = self.step.row.wall_seconds
        return Used(self.asked.cores, self.step.row.cpu_seconds / wall) if wall else None

    @property
    def time_used(self) -> Used | None:
        """p50 of the seconds per event; asked for is that of all steps of the task together."""
        spread = self.step.spreads.get("seconds_per_event")
        return Used(self.asked.time_per_event_seconds, spread.p50) if spread else None

    @property
    def disk_used(self) -> Used:
        """KB written per event; asked for is that of all steps of the task together."""
        return Used(self.asked.size_per_event_kb, sum(written for _, written in self.sizes) / 1000)


class DecisionLine(NamedTuple):
    """One number of the newest DAG in words. ``before`` is empty when it is what it was."""

    name: str
    of: str
    before: str
    chosen: str
    measured: str
    row: SizingDecision


class RoundsOnPage(NamedTuple):
    """``left_out``: rounds before the first line; ``steps`` of the rounds shown, newest first.

    Jobs are to take ``target_seconds``, merged files to lie between ``merge_bytes``.
    """

    lines: tuple[RoundLine, ...]
    left_out: int
    decisions: tuple[DecisionLine, ...]
    steps: tuple[StepLine, ...]
    target_seconds: int
    merge_bytes: tuple[int, int]


def rounds_on_page(
    request: Request, dags: Sequence[DAG], table: UnitTable, datasets: Sequence[OutputDataset], rows: Rows
) -> RoundsOnPage | None:
    """With the workflow's DAGs, newest first, of rows that were read.

    None for another request until it has a second round, or something is measured.
    """
    newest = {dag.round_id: dag for dag in reversed(dags)}
    measured = grouped(rows["measurements"], lambda measurement: measurement.round_id)
    shown = [(row, measured[row.pk]) for row in reversed(rows["rounds"][:MOST_ROUNDS]) if row.pk in newest]
    rounds = measured_of(shown, rows["failures"])
    if not (request.adaptive or len(rounds) > 1 or any(each.steps for each in rounds)):
        return None
    tiers = {(dataset.step, dataset.module): dataset.tier for dataset in datasets}
    steps = [
        _step_line(each.row.index, step, tiers, asked_by(newest[each.row.pk], step.row.step))
        for each in reversed(rounds)
        for step in each.steps
    ]
    limits = as_planned(dags[0]) if dags else None
    return RoundsOnPage(
        lines=tuple(_line(each, newest[each.row.pk], table, tiers) for each in rounds),
        left_out=rounds[0].row.index if rounds else 0,
        decisions=tuple(_decision(row) for row in rows["decisions"]),
        steps=tuple(steps[:MOST_STEPS]),
        target_seconds=TARGET_WALL_SECONDS,
        merge_bytes=(limits.min_merge_bytes, limits.max_merge_bytes) if limits else (0, 0),
    )


def _line(each: MeasuredRound, dag: DAG, table: UnitTable, outputs: Iterable[tuple[str, str]]) -> RoundLine:
    spec, sums = as_planned(dag), [row for row in table.sums if row.round_id == each.row.pk]
    jobs, counts = sum(row.jobs for row in sums), table.counts(round_id=each.row.pk)
    cores = {step: task.resources.cores for task in spec.tasks for step in task.steps}
    first = spec.tasks[0].steps if spec.tasks else tuple(step.name for step in spec.steps)
    core_seconds = sum(step.row.wall_seconds * cores.get(step.row.step, spec.resources.cores) for step in each.steps)
    rss = {step.row.step: step.spreads["slot_rss_mb"].p95 for step in each.steps if "slot_rss_mb" in step.spreads}
    most = max(rss, key=lambda step: rss[step], default="")
    written = Counter[tuple[str, str]]()
    for step in each.steps:
        written.update({(step.row.step, module): size for module, size in step.row.bytes_written.items()})
    events = sum(step.row.events_read for step in each.steps if step.row.step == first[0])
    planned = spec.splitting.shown(spec.generation).get("events_per_job") or sum(row.events for row in sums) // max(jobs, 1)
    largest = max((written[output] for output in outputs), default=0)
    return RoundLine(
        index=each.row.index,
        units=counts,
        jobs=jobs,
        cores=spec.resources.cores,
        memory_mb=spec.resources.memory_mb,
        events_per_job=planned,
        rss_mb=rss.get(most),
        rss_step=most,
        job=_added(each.steps, first) if events else None,
        merged_bytes=largest / counts.done if largest and counts.done else None,
        efficiency=sum(step.row.cpu_seconds for step in each.steps) / core_seconds if core_seconds else None,
        events_per_core_hour=3600 * events / core_seconds if core_seconds else None,
    )


def _added(steps: Iterable[StepDetail], names: Iterable[str]) -> Spread:
    """The wall of a job of these steps, which run one after the other."""
    walls = {name: [each.row.histograms.get("job_seconds", {}) for each in steps if each.row.step == name] for name in names}
    return Spread(*(sum(quantile(added(*each), share) or 0.0 for each in walls.values()) for share in (0.5, 0.95)))


def asked_by(dag: DAG, step: str) -> ResourceSpec:
    """What the jobs of a DAG that run a step ask of their slots."""
    spec = as_planned(dag)
    return next((task.resources for task in spec.tasks if step in task.steps), spec.resources)


def _step_line(round_index: int, step: StepDetail, tiers: Mapping[tuple[str, str], str], asked: ResourceSpec) -> StepLine:
    row, events = step.row, max(step.row.events_read, 1)
    sizes = sorted((tiers.get((row.step, module), module), written / events) for module, written in row.bytes_written.items())
    return StepLine(round_index, step, row.events_written / events, tuple(sizes), tuple(step.exit_codes.items()), asked)


def _decision(row: SizingDecision) -> DecisionLine:
    name, unit, measured_in = _DECIDED.get(row.what, (row.what.replace("_", " "), "", ""))
    in_bytes = row.what == "jobs_per_work_unit"
    measured = "" if row.measured is None else size(row.measured) if in_bytes else number(row.measured)
    return DecisionLine(
        name=name,
        of=row.step or (f"task {row.task}" if row.task != FIRST_TASK else ""),
        before="" if row.before in (None, row.chosen) else number(row.before),
        chosen=f"{number(row.chosen)} {unit}".strip(),
        measured=f"{measured} {measured_in}".strip() if measured else "",
        row=row,
    )
