"""The tasks of a TaskChain: a tree of jobs, each task with its own resources and splitting. Owns how a later task's input is cut.

Later tasks read what the jobs of an earlier task of the same work unit left; masks, run lists and blocks belong to the first
task. docs/design/model.md, Tasks of a chain; ADR 0043.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dags_app.planning.specs import TaskSpec
from dags_app.planning.splitters.rounding import round_to_lumis
from requests_app.intake.chain import StepView
from requests_app.intake.draft import MemoryWindow, StepDraft
from requests_app.intake.findings import Findings
from requests_app.intake.resources import fit_memory, read_resources
from requests_app.intake.work import read_splitting


def read_tasks(
    document: Mapping[str, object],
    views: Sequence[StepView],
    steps: Sequence[StepDraft],
    window: MemoryWindow,
    findings: Findings,
) -> tuple[TaskSpec, ...]:
    """One task for each view of a TaskChain, in order; nothing for other documents."""
    if not (views and views[0].is_task):
        return ()
    _check_purpose(steps, findings)
    return tuple(_read_task(document, view, step, window, findings) for view, step in zip(views, steps, strict=True))


def _read_task(
    document: Mapping[str, object], view: StepView, step: StepDraft, window: MemoryWindow, findings: Findings
) -> TaskSpec:
    asked = read_resources(document, (view,), findings)
    memory_field, _ = view.inherited("Memory")
    task = TaskSpec(
        number=view.number,
        name=view.name,
        steps=(view.name,),
        resources=fit_memory(asked, window, findings, field=memory_field),
        input_task=step.spec.input_step,
        input_step=step.spec.input_step,
        input_module=step.spec.input_module,
    )
    return task if view.number == 1 else with_splitting(task, view, findings)


def with_splitting(task: TaskSpec, view: StepView, findings: Findings) -> TaskSpec:
    """A later task with its own algorithm and numbers."""
    cut = read_splitting(view, task.resources.time_per_event_seconds, findings)
    return replace(
        task,
        algorithm=cut.algorithm,
        events_per_job=round_to_lumis(cut.events_per_job, cut.events_per_lumi) if cut.events_per_lumi else cut.events_per_job,
        lumis_per_job=cut.lumis_per_job,
        files_per_job=cut.files_per_job,
    )


def _check_purpose(steps: Sequence[StepDraft], findings: Findings) -> None:
    """A task whose outputs are neither kept nor read would run for nothing."""
    read = {step.spec.input_step for step in steps}
    for step in steps:
        if step.spec.name and not step.spec.keep_output and step.spec.name not in read:
            findings.problem(f"{step.prefix}KeepOutput", "no task reads the output of this one, so it must be kept")
