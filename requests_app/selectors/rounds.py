"""The rounds of a workflow: what each was planned with, why, and what it measured (spec 5.3, 5.6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Prefetch

from dags_app.models import DAG, FailureGroup, SizingDecision, StepMeasurement
from dags_app.planning.measured import Spread
from requests_app.models import Round, Workflow
from requests_app.work.sizing import spread
from wms2.runtime.json_columns import numbered


class StepDetail(NamedTuple):
    """A step over those jobs of a round that ran it alike. ``exit_codes``: code -> failed attempts of the step in the round."""

    row: StepMeasurement
    cpu_efficiency: float | None
    spreads: Mapping[str, Spread]
    exit_codes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """What a round measured. ``exit_codes``: step -> code -> failed attempts, also of steps that no job has measured."""

    row: Round
    steps: list[StepDetail]
    exit_codes: Mapping[str, Mapping[str, int]]

    @property
    def dags(self) -> list[DAG]:
        """The first one, then its rescues."""
        return list(self.row.dags.all())

    @property
    def decisions(self) -> list[SizingDecision]:
        """Of all its DAGs."""
        return [decision for dag in self.dags for decision in dag.decisions.all()]


#: What is shown of each step as a spread.
SPREADS = ("job_seconds", "seconds_per_event", "rss_mb", "slot_rss_mb", "cgroup_peak_mb", "cpu_efficiency")


def rounds_of(workflow: Workflow) -> list[MeasuredRound]:
    """All rounds of a workflow, the first one first; a fixed number of queries."""
    dags = DAG.objects.order_by("created_at").defer("observed", "outcome", "placement").prefetch_related("decisions")
    rows = workflow.rounds.order_by("index").prefetch_related(Prefetch("dags", dags), "measurements")
    groups = FailureGroup.objects.filter(workflow=workflow).values("step", "code", "rounds")
    return measured_of(((row, row.measurements.all()) for row in rows), groups)


def measured_of(
    rows: Iterable[tuple[Round, Iterable[StepMeasurement]]], groups: Iterable[Mapping[str, Any]]
) -> list[MeasuredRound]:
    """Of rounds with their measurements, and groups of failures of their workflow."""
    of_rounds = _exit_codes(groups)
    found = ((row, measured, of_rounds.get(row.index, {})) for row, measured in rows)
    return [MeasuredRound(row, [_step(each, codes.get(each.step, {})) for each in steps], codes) for row, steps, codes in found]


def _step(row: StepMeasurement, codes: Mapping[str, int]) -> StepDetail:
    core_seconds = row.wall_seconds * row.processes * row.threads
    return StepDetail(
        row=row,
        cpu_efficiency=row.cpu_seconds / core_seconds if core_seconds > 0 else None,
        spreads={name: spread(row, name) for name in SPREADS if row.histograms.get(name)},
        exit_codes=codes,
    )


def _exit_codes(groups: Iterable[Mapping[str, Any]]) -> Mapping[int, Mapping[str, Counter[str]]]:
    """Round index -> step -> code -> failed attempts."""
    found: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for group in groups:
        for index, attempts in numbered(group["rounds"]):
            found[index][group["step"]][str(group["code"])] += attempts
    return found
