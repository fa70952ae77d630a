"""With what a round is planned, or a rescue submitted: hints, what was measured, limits and pins brought together (spec 5.3).

Owns where they come from (what was measured from all rounds, those of former versions too: spec 5.6), how large a round is, and
the form of ``Round.sizing``. The rules are ``dags_app.planning.adaptive``.
An adaptive request is sized whole; another keeps its splitting and cores, and gets measured memory, sizes and profile.
See docs/design/model.md, Rounds and rescues; docs/adr/0009.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from dags_app.histogram import quantile
from dags_app.models import DAG, StepMeasurement, WorkUnit, WorkUnitState
from dags_app.planning.adaptive import size_rescue, size_round
from dags_app.planning.levels import FIRST_TASK
from dags_app.planning.measured import Sizing, SizingLimits, Spread, StepMeasured
from dags_app.planning.sizing import sizes_from_json
from dags_app.planning.specs import GenerationSpec, ResourceSpec, SplittingSpec, WorkflowSpec
from requests_app.models import MAX_VERSIONS, Request, Workflow
from requests_app.work.overrides import overrides_of, pins_of
from requests_app.work.spec import spec_of
from wms2.runtime.in_force import in_force
from wms2.runtime.json_columns import known

#: Work units of an adaptive request's first round, which runs by the request's hints.
_FIRST_ROUND_UNITS = 1
#: Work units of one DAG.
MAX_WORK_UNITS_PER_DAG = 5_000

#: In ``Round.sizing``: resources of the later tasks' jobs by number; how work is cut.
_TASKS, _SPLITTING = "tasks", "splitting"
_SIZED = ("cores", "memory_mb", "time_per_event_seconds", "size_per_event_kb")


def round_sizing(request: Request) -> tuple[Sizing, int]:
    """How its next round is sized, and how many work units it may have."""
    spec, measured = spec_of(request.workflow), measured_of(request.workflow)
    limits, pins = _limits(), pins_of(request)
    units = _units_of_round(request, first=not measured)
    if request.adaptive or not measured:
        return size_round(spec, measured, limits, pins), units
    pinned = size_round(spec, [], limits, pins)
    sized = size_rescue(pinned.workflow, measured, limits, pins)
    decisions = {(each.what, each.task, each.step): each for each in (*pinned.decisions, *sized.decisions)}
    return replace(sized, jobs_per_work_unit=pinned.jobs_per_work_unit, decisions=tuple(decisions.values())), units


def rescue_sizing(request: Request, last: DAG) -> Sizing:
    """How a rescue of ``last`` is sized: its jobs are cut, so only memory and the profile can be others."""
    return size_rescue(as_planned(last), measured_of(request.workflow), _limits(), pins_of(request))


def _units_of_round(request: Request, *, first: bool) -> int:
    """``first``: nothing is measured. Where units are done and have measured nothing, no further one would."""
    if request.adaptive and first and not WorkUnit.objects.filter(workflow=request.workflow, state=WorkUnitState.DONE).exists():
        return min(_FIRST_ROUND_UNITS, MAX_WORK_UNITS_PER_DAG)
    pinned = overrides_of(request).work_units_per_round
    wanted = pinned or (in_force().work_units_per_round if request.adaptive else MAX_WORK_UNITS_PER_DAG)
    return min(wanted, MAX_WORK_UNITS_PER_DAG)


def stored_sizing(sizing: Sizing) -> dict[str, Any]:
    """What ``Round.sizing`` holds of it."""
    spec = sizing.workflow
    return {
        **asdict(spec.resources),
        _TASKS: {str(task.number): asdict(task.resources) for task in spec.tasks[1:]},
        _SPLITTING: spec.splitting.shown(spec.generation),
        "jobs_per_work_unit": sizing.jobs_per_work_unit,
        "bytes_per_event": sizing.bytes_per_event,
    }


def as_planned(dag: DAG) -> WorkflowSpec:
    """The specification with the resources and the splitting that the DAG's round was planned with; memory as the DAG has it."""
    spec, stored, memory = spec_of(dag.workflow), dag.round.sizing, sizes_from_json(dag.sizes).memory_mb

    def resources(number: int, asked: ResourceSpec) -> ResourceSpec:
        chosen = stored if number == FIRST_TASK else stored.get(_TASKS, {}).get(str(number), {})
        chosen = {**chosen, **({"memory_mb": memory[number]} if number in memory else {})}
        return replace(asked, **{name: chosen[name] for name in _SIZED if name in chosen})

    cut = {name: number for name, number in stored.get(_SPLITTING, {}).items() if name != "algorithm"}
    made = spec.generation
    return replace(
        spec,
        resources=resources(FIRST_TASK, spec.resources),
        tasks=tuple(replace(task, resources=resources(task.number, task.resources)) for task in spec.tasks),
        generation=replace(made, **known(GenerationSpec, cut)) if made is not None else None,
        splitting=replace(spec.splitting, **known(SplittingSpec, cut)) if made is None else spec.splitting,
    )


def _limits() -> SizingLimits:
    limits = in_force()
    return SizingLimits(
        default_memory_per_core_mb=limits.default_memory_per_core_mb,
        max_memory_per_core_mb=limits.max_memory_per_core_mb,
        memory_margin=limits.memory_margin,
        min_jobs=limits.sizing_min_jobs,
        overcommit_max=limits.overcommit_max,
        jobs_per_work_unit=limits.jobs_per_work_unit,
    )


_PLAIN = (
    "step", "processes", "threads", "jobs", "events_read", "events_written", "lumis_read", "files_read", "wall_seconds",
    "cpu_seconds", "bytes_written",
)  # fmt: skip


def measured_of(workflow: Workflow) -> list[StepMeasured]:
    """Each step by round and how it ran; of a former version, whose rounds count below 0, steps configured as this one's."""
    found: list[StepMeasured] = []
    own, shift = _configured(workflow), 0
    for version in _versions(workflow):
        same = {step for step, configured in _configured(version).items() if own.get(step) == configured}
        shift -= 0 if version == workflow else version.rounds.count()
        rows = StepMeasurement.objects.filter(round__workflow=version, step__in=same).select_related("round")
        found += [_measured(row, row.round.index + shift) for row in rows.order_by("round__index", "step", "id")]
    return found


def _measured(row: StepMeasurement, round_index: int) -> StepMeasured:
    plain = {name: getattr(row, name) for name in _PLAIN}
    spreads: dict[str, Any] = {name: spread(row, name) for name in ("job_seconds", "seconds_per_event", "rss_mb", "slot_rss_mb")}
    return StepMeasured(round_index=round_index, **spreads, **plain)


def spread(row: StepMeasurement, name: str) -> Spread:
    """How a quantity is spread over the jobs of a row; 0 where none reported it."""
    return Spread(*(quantile(row.histograms.get(name, {}), share) or 0.0 for share in (0.5, 0.95)))


def _versions(workflow: Workflow) -> Iterable[Workflow]:
    """This workflow, then those of the versions before it, newest first."""
    yield workflow
    name = workflow.request.previous_version_request_id
    for _ in range(MAX_VERSIONS):
        before = Request.objects.filter(request_name=name).select_related("workflow").defer("request_data", "workflow__psets")
        request = before.first()
        if request is None:
            return
        if hasattr(request, "workflow"):
            yield request.workflow
        name = request.previous_version_request_id


def _configured(workflow: Workflow) -> dict[str, tuple[str, str]]:
    return {step.name: (step.config_cache_id, step.cmssw_version) for step in spec_of(workflow).steps}
