"""The tasks of a TaskChain: a tree of jobs, each task with its own resources. Owns how a later task's input is cut.

Later tasks read what the jobs of an earlier task of the same work unit left, so only whole files can be dealt out and only
EventsPerJob says how many; masks, run lists and blocks belong to the first task. ``model.md`` section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dags_app.planning.specs import SplittingAlgo, TaskSpec
from requests_app.intake.chain import StepView
from requests_app.intake.draft import MemoryWindow, StepDraft
from requests_app.intake.findings import Findings
from requests_app.intake.resources import fit_memory, read_resources
from requests_app.intake.values import is_set
from requests_app.intake.work import read_algorithm, read_events_per_job

_BY_FILE = (SplittingAlgo.FILE_BASED, SplittingAlgo.LUMI_BASED)


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
    return TaskSpec(
        number=view.number,
        name=view.name,
        steps=(view.name,),
        resources=fit_memory(asked, window, findings, field=memory_field),
        input_task=step.spec.input_step,
        input_step=step.spec.input_step,
        input_module=step.spec.input_module,
        events_per_job=_events_per_job(view, asked.time_per_event_seconds, findings) if view.number > 1 else 0,
    )


def _events_per_job(view: StepView, time_per_event_seconds: float, findings: Findings) -> int:
    """How many events of an earlier task's files one job takes; 0: one file a job."""
    algorithm = read_algorithm(view, findings)
    per_job = read_events_per_job(view, time_per_event_seconds, findings)
    if algorithm not in _BY_FILE:
        return per_job
    number = "FilesPerJob" if algorithm is SplittingAlgo.FILE_BASED else "LumisPerJob"
    if algorithm is SplittingAlgo.LUMI_BASED or (is_set(view.own.get(number)) and view.own.get(number) not in (1, "1")):
        findings.warn(
            f"{view.prefix}SplittingAlgo",
            f"{algorithm}: one job for each whole file of {view.own.get('InputTask')}; {number} is not used in a later task",
        )
    return 0


def _check_purpose(steps: Sequence[StepDraft], findings: Findings) -> None:
    """A task whose outputs are neither kept nor read would run for nothing."""
    read = {step.spec.input_step for step in steps}
    for step in steps:
        if step.spec.name and not step.spec.keep_output and step.spec.name not in read:
            findings.problem(f"{step.prefix}KeepOutput", "no task reads the output of this one, so it must be kept")
