"""The tasks of a TaskChain: a tree of jobs, each task with its own resources and splitting. Owns how a later task's input is cut.

Later tasks read what the jobs of an earlier task of the same work unit left; masks, run lists and blocks belong to the first
task. docs/design/model.md, Tasks of a chain; ADR 0008.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dags_app.planning.lumis import round_to_lumis
from dags_app.planning.specs import TaskSpec
from requests_app.intake.chain import Part
from requests_app.intake.draft import StepDraft
from requests_app.intake.requirements import requirements
from requests_app.intake.resources import fit_memory, read_resources
from requests_app.intake.work import read_splitting
from wms2.conf import Limits


def read_tasks(parts: Sequence[Part], steps: Sequence[StepDraft], limits: Limits) -> tuple[TaskSpec, ...]:
    """One task for each part of a TaskChain, in order; nothing for other documents."""
    if not (parts and parts[0].is_task):
        return ()
    _check_purpose(parts, steps)
    return tuple(_read_task(part, step, limits) for part, step in zip(parts, steps, strict=True))


def _read_task(part: Part, step: StepDraft, limits: Limits) -> TaskSpec:
    memory_field, _ = part.inherited("Memory")
    task = TaskSpec(
        number=part.number,
        name=part.name,
        steps=(part.name,),
        resources=fit_memory(read_resources(part.document, (part,)), limits, part.findings, field=memory_field),
        input_task=step.spec.input_step,
        input_step=step.spec.input_step,
        input_module=step.spec.input_module,
        extra_requirements=part.read("JobExtraMatchRequirements", requirements, ""),
    )
    return task if part.number == 1 else with_splitting(task, part)


def with_splitting(task: TaskSpec, part: Part) -> TaskSpec:
    """A later task with its own algorithm and numbers."""
    cut = read_splitting(part, task.resources.time_per_event_seconds)
    return replace(
        task,
        algorithm=cut.algorithm,
        events_per_job=round_to_lumis(cut.events_per_job, cut.events_per_lumi),
        lumis_per_job=cut.lumis_per_job,
        files_per_job=cut.files_per_job,
    )


def _check_purpose(parts: Sequence[Part], steps: Sequence[StepDraft]) -> None:
    """A task whose outputs are neither kept nor read would run for nothing."""
    read = {step.spec.input_step for step in steps}
    for part, step in zip(parts, steps, strict=True):
        if part.name and not step.spec.keep_output and part.name not in read:
            part.problem("KeepOutput", "no task reads the output of this one, so it must be kept")
