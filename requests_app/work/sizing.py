"""With what a round is planned, or a rescue submitted: hints, what was measured, limits and pins brought together (spec 5.3).

Owns where they come from, how large a round is, and the form of ``Round.sizing``. The rules are ``dags_app.planning.adaptive``.
An adaptive request is sized whole; another keeps its splitting and cores, and gets measured memory, sizes and profile.
See docs/design/model.md, Rounds and rescues; docs/adr/0071.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dags_app.models import DAG, WorkUnit, WorkUnitState
from dags_app.planning.adaptive import size_rescue, size_round
from dags_app.planning.levels import FIRST_TASK
from dags_app.planning.measured import Sizing, SizingLimits
from dags_app.planning.sizing import sizes_from_json
from dags_app.planning.specs import ResourceSpec, WorkflowSpec
from requests_app.limits import limit_int
from requests_app.models import Request
from requests_app.work.measured import measured_of
from requests_app.work.overrides import overrides_of, pins_of
from requests_app.work.spec import spec_of
from wms2.conf import conf
from wms2.in_force import in_force

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
    settings, most = conf(), conf().max_work_units_per_dag
    if request.adaptive and first and not WorkUnit.objects.filter(workflow=request.workflow, state=WorkUnitState.DONE).exists():
        return min(settings.first_round_units, most)
    pinned = overrides_of(request).work_units_per_round
    return min(pinned or (limit_int("work_units_per_round") if request.adaptive else most), most)


def sizing_kept(sizing: Sizing) -> dict[str, Any]:
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
    spec, kept, memory = spec_of(dag.workflow), dag.round.sizing, sizes_from_json(dag.sizes).memory_mb

    def resources(number: int, asked: ResourceSpec) -> ResourceSpec:
        chosen = kept if number == FIRST_TASK else kept.get(_TASKS, {}).get(str(number), {})
        chosen = {**chosen, **({"memory_mb": memory[number]} if number in memory else {})}
        return replace(asked, **{name: chosen[name] for name in _SIZED if name in chosen})

    cut = {name: number for name, number in kept.get(_SPLITTING, {}).items() if name != "algorithm"}
    made = spec.generation
    return replace(
        spec,
        resources=resources(FIRST_TASK, spec.resources),
        tasks=tuple(replace(task, resources=resources(task.number, task.resources)) for task in spec.tasks),
        generation=replace(made, **cut) if made is not None else None,
        splitting=replace(spec.splitting, **cut) if made is None else spec.splitting,
    )


def _limits() -> SizingLimits:
    settings = in_force()
    return SizingLimits(
        default_memory_per_core_mb=settings.default_memory_per_core_mb,
        max_memory_per_core_mb=settings.max_memory_per_core_mb,
        max_wall_seconds=settings.max_wall_seconds,
        target_wall_seconds=min(settings.target_wall_seconds, settings.max_wall_seconds),
        memory_margin=settings.memory_margin,
        min_request_cpus=settings.min_request_cpus,
        min_jobs=settings.sizing_min_jobs,
        split_below=settings.split_below,
        overcommit_max=settings.overcommit_max,
        jobs_per_work_unit=limit_int("jobs_per_work_unit"),
        max_jobs_per_work_unit=settings.max_jobs_per_work_unit,
    )
