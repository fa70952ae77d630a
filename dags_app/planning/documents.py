"""``job.json`` and ``unit.json``: what the payload is told, as JSON text with a fixed order (``docs/payload-contract.md``).

Their fields are the payload's, ``dags_app.payload.contract.documents``; owns what of a specification goes into which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar
from uuid import UUID

from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.documents import JobDocument, MergeLimits, Output, Step, Task, Transient, UnitJob
from dags_app.planning import lumis
from dags_app.planning.levels import FIRST_TASK, later_tasks, node_name, upstream_names
from dags_app.planning.merge_kinds import merge_kind
from dags_app.planning.specs import DagSpec, WorkflowSpec, WorkUnitSpec

_T = TypeVar("_T")


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
        outputs=tuple(_same(Output, each, merge=each.merge or merge_kind(each.tier)) for each in workflow.outputs),
        tasks=tuple(_same(Task, task) for task in workflow.tasks),
        transients=_transients(workflow),
        trust_pileup_sitelists=workflow.trust_pileup_sitelists,
        merge=MergeLimits(workflow.min_merge_bytes, workflow.max_merge_bytes, workflow.max_merge_events),
    )
    return json.dumps(to_json(document), indent=1) + "\n"


def _same(kind: type[_T], spec: object, **given: Any) -> _T:
    """A value of the payload's with the fields of the same names in a specification, and those ``given``."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: given[name] if name in given else getattr(spec, name) for name in names})


def _transients(workflow: WorkflowSpec) -> tuple[Transient, ...]:
    """What the tasks of a chain only hand on: outputs that are read by a later task and not kept."""
    kept = {(output.step, output.module) for output in workflow.outputs}
    read = dict.fromkeys((task.input_step or "", task.input_module or "") for task in later_tasks(workflow))
    return tuple(
        Transient(step, module, _transient_base(workflow, module)) for step, module in read if (step, module) not in kept
    )


def _transient_base(workflow: WorkflowSpec, module: str) -> str:
    """Beside the unmerged files of the first kept output; nobody catalogues these files, so the module stands for the tier."""
    head, _tier, processing = workflow.outputs[0].unmerged_lfn_base.rsplit("/", 2)
    return f"{head}/{module}/{processing}"


def unit_document(unit: WorkUnitSpec, mixed_before: Mapping[str, int]) -> str:
    """The jobs of one unit, one to a line, level by level.

    Args:
        mixed_before: node -> events of deterministic pileup that the jobs before it mix (``pileup.MixedEvents``).
    """
    head = json.dumps({"schema": layout.UNIT_SCHEMA, "unit": unit.name, "index": unit.index})
    documents = [to_json(job) for job in _jobs(unit, mixed_before)]
    if not unit.levels:
        for document in documents:
            del document["task"]
    jobs = ",\n".join(json.dumps(document) for document in documents)
    return f'{head[:-1]}, "jobs": [\n{jobs}\n]}}\n'


def _jobs(unit: WorkUnitSpec, mixed_before: Mapping[str, int]) -> Iterator[UnitJob]:
    for index, job in enumerate(unit.jobs):
        name = node_name(index)
        mask = None if job.mask is None else tuple(lumis.iterate(job.mask))
        yield UnitJob(name, FIRST_TASK, job.events, (), None, job.generate, job.files, mask, mixed_before.get(name))
    for level in unit.levels:
        for (name, reads), node in zip(upstream_names(level), level.nodes, strict=True):
            mixed = mixed_before.get(name)
            yield UnitJob(name, level.task, node.events, tuple(reads), node.share, None, (), None, mixed)
