"""``job.json`` and ``unit.json``: what the payload is given, as JSON text with a fixed order (``docs/payload-contract.md``).

Their fields are the payload's, ``dags_app.payload.contract.documents``; owns what of a specification goes into which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, TypeVar
from uuid import UUID

from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.documents import InputFile, JobDocument, MergeLimits, Output, Step, Task, Transient
from dags_app.planning.levels import FIRST_TASK, node_name, upstream_names
from dags_app.planning.specs import DagSpec, JobSpec, MergeKind, WorkflowSpec, WorkUnitSpec

_T = TypeVar("_T")

_NEXT = '", "'
#: What a node of a later task has beside what it reads.
_NOTHING_ELSE = '"generate": null, "files": [], "mask": null'


def job_document(spec: DagSpec) -> str:
    """What all jobs of the DAG share."""
    workflow = spec.workflow
    document = JobDocument(
        instance=spec.instance,
        request_name=workflow.request_name,
        workflow_id=UUID(spec.workflow_id),
        dag_id=spec.dag_id,
        round_index=spec.round_index,
        steps=tuple(_same(Step, step, pset=layout.pset_path(step.number, step.name)) for step in workflow.steps),
        outputs=tuple(_same(Output, each, merge=each.merge or MergeKind.of(each.tier)) for each in workflow.outputs),
        tasks=tuple(_same(Task, task) for task in workflow.tasks),
        transients=_transients(workflow),
        trust_pileup_sitelists=workflow.trust_pileup_sitelists,
        stage_out_pauses_seconds=spec.limits.stage_out_pauses_seconds,
        merge=MergeLimits(workflow.min_merge_bytes, workflow.max_merge_bytes, workflow.max_merge_events),
    )
    return json.dumps(to_json(document), indent=1) + "\n"


def _same(kind: type[_T], spec: object, **given: Any) -> _T:
    """A value of the payload's with the fields of the same names in a specification, and those ``given``."""
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return kind(**{name: given[name] if name in given else getattr(spec, name) for name in names})


def _transients(workflow: WorkflowSpec) -> tuple[Transient, ...]:
    """What the tasks of a chain only hand on: outputs that are read by a later task and not kept.

    Their directories are as ReqMgr2 has them, which protects the folders that it names from cleaners of unmerged files. Where
    the specification does not know one: beside those of the first kept output, the module standing for the tier.
    """
    kept = {(output.step, output.module) for output in workflow.outputs}
    read = dict.fromkeys((task.input_step or "", task.input_module or "") for task in workflow.tasks[1:])
    bases = {
        (step.name, module): base
        for step in workflow.steps
        for module, base in zip(step.output_modules, step.unmerged_lfn_bases, strict=False)
    }
    head, _tier, processing = workflow.outputs[0].unmerged_lfn_base.rsplit("/", 2) if workflow.outputs else ("", "", "")
    others = (each for each in read if each not in kept)
    return tuple(Transient(*each, bases.get(each, f"{head}/{each[1]}/{processing}")) for each in others)


def unit_document(unit: WorkUnitSpec, mixed_before: Mapping[str, int]) -> str:
    """The jobs of one unit, one to a line, level by level.

    Character for character what ``json.dumps`` makes of the payload's ``UnitJob``, put together by hand: every job of every DAG
    is written here, and a value with its dictionary for each took more time than all else in a DAG directory.

    Args:
        mixed_before: node -> events of deterministic pileup that the jobs before it mix (``pileup.MixedEvents``).
    """
    task = f'"task": {FIRST_TASK}, ' if unit.levels else ""
    jobs = [(node_name(index), f'{task}"events": {job.events}, {_work(job)}') for index, job in enumerate(unit.jobs)]
    for level in unit.levels:
        for (name, reads), node in zip(upstream_names(level), level.nodes, strict=True):
            share = "" if node.share is None else f', "share": {json.dumps(to_json(node.share))}'
            read = f'"reads": ["{_NEXT.join(reads)}"]{share}, {_NOTHING_ELSE}'
            jobs.append((name, f'"task": {level.task}, "events": {node.events}, {read}'))
    mixed = {name: f', "mixed_before": {events}' for name, events in mixed_before.items()}
    lines = ",\n".join([f'{{"node": "{name}", {rest}{mixed.get(name, "")}}}' for name, rest in jobs])
    return f'{{"schema": "{layout.UNIT_SCHEMA}", "unit": "{unit.name}", "index": {unit.index}, "jobs": [\n{lines}\n]}}\n'


def _work(job: JobSpec) -> str:
    generate, mask = "null", "null"
    if (made := job.generate) is not None:
        generate = (
            f'{{"run": {made.run}, "first_event": {made.first_event}, "last_event": {made.last_event}, '
            f'"first_lumi": {made.first_lumi}, "last_lumi": {made.last_lumi}, "events_per_lumi": {made.events_per_lumi}}}'
        )
    if job.mask is not None:
        runs = sorted(job.mask.items())
        spans = [f'"{run}": [{", ".join([f"[{first}, {last}]" for first, last in spans])}]' for run, spans in runs]
        mask = f"{{{', '.join(spans)}}}"
    return f'"generate": {generate}, "files": [{", ".join(map(_file, job.files))}], "mask": {mask}'


def _file(file: InputFile) -> str:
    lfn, size_bytes, events, first, last, parents = file
    return (
        f'{{"lfn": {_quoted(lfn)}, "size_bytes": {size_bytes}, "events": {events}, '
        f'"first_event": {"null" if first is None else first}, "last_event": {"null" if last is None else last}, '
        f'"parents": [{", ".join(map(_quoted, parents))}]}}'
    )
