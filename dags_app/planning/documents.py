"""``job.json`` and ``unit.json``: what the payload is told, as JSON text with a fixed order (``docs/payload-contract.md``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dags_app.planning import layout, lumis
from dags_app.planning.levels import FIRST_TASK, later_tasks, node_name, upstream_names
from dags_app.planning.merge_kinds import merge_kind
from dags_app.planning.specs import (
    DagSpec,
    GeneratedRange,
    JobFile,
    JobSpec,
    LevelSpec,
    Share,
    StepSpec,
    TaskSpec,
    WorkflowSpec,
    WorkUnitSpec,
)

JOB_SCHEMA = "wms2.job/1"
UNIT_SCHEMA = "wms2.unit/1"

Document = dict[str, Any]


def job_document(spec: DagSpec) -> str:
    """What all jobs of the DAG share."""
    workflow = spec.workflow
    document = {
        "schema": JOB_SCHEMA,
        "instance": spec.instance,
        "request_name": workflow.request_name,
        "workflow_id": spec.workflow_id,
        "dag_id": spec.dag_id,
        "round": spec.round_index,
        "steps": [_step(step) for step in workflow.steps],
        "outputs": [
            {
                "step": output.step,
                "module": output.module,
                "tier": output.tier,
                "dataset": output.dataset,
                "merged_lfn_base": output.merged_lfn_base,
                "unmerged_lfn_base": output.unmerged_lfn_base,
                "merge": output.merge or merge_kind(output.tier),
            }
            for output in workflow.outputs
        ],
        **(_tasks(workflow) if later_tasks(workflow) else {}),
        **({"trust_pileup_sitelists": workflow.trust_pileup_sitelists} if spec.pileup else {}),
        "merge": {
            "min_bytes": workflow.min_merge_bytes,
            "max_bytes": workflow.max_merge_bytes,
            "max_events": workflow.max_merge_events,
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _tasks(workflow: WorkflowSpec) -> Document:
    """The tasks of a chain, and what they only hand on: outputs that are read by a later task and not kept."""
    kept = {(output.step, output.module) for output in workflow.outputs}
    handed_on = dict.fromkeys(
        (task.input_step, task.input_module) for task in later_tasks(workflow) if (task.input_step, task.input_module) not in kept
    )
    return {
        "tasks": [_task(task) for task in workflow.tasks],
        "transient": [
            {"step": step, "module": module, "unmerged_lfn_base": _transient_base(workflow, module or "")}
            for step, module in handed_on
        ],
    }


def _task(task: TaskSpec) -> Document:
    return {
        "number": task.number,
        "name": task.name,
        "steps": list(task.steps),
        "input_step": task.input_step,
        "input_module": task.input_module,
    }


def _transient_base(workflow: WorkflowSpec, module: str) -> str:
    """Beside the unmerged files of the first kept output; nobody catalogues these files, so the module stands for the tier."""
    head, _tier, processing = workflow.outputs[0].unmerged_lfn_base.rsplit("/", 2)
    return f"{head}/{module}/{processing}"


def _step(step: StepSpec) -> Document:
    return {
        "number": step.number,
        "name": step.name,
        "pset": layout.pset_path(step.number, step.name),
        "cmssw_version": step.cmssw_version,
        "scram_arch": list(step.scram_arch),
        "global_tag": step.global_tag,
        "threads": step.threads,
        "event_streams": step.event_streams,
        "input_step": step.input_step,
        "input_module": step.input_module,
        "keep_output": step.keep_output,
        "output_modules": list(step.output_modules),
        "seeding": step.seeding,
        **(_pileup(step) if step.pileup else {}),
    }


def _pileup(step: StepSpec) -> Document:
    return {
        "pileup": [{"kind": pileup.kind, "dataset": pileup.dataset} for pileup in step.pileup],
        "deterministic_pileup": step.deterministic_pileup,
    }


def unit_document(unit: WorkUnitSpec, mixed_before: Mapping[str, int]) -> str:
    """The jobs of one unit, one to a line, level by level.

    Args:
        mixed_before: node -> events of deterministic pileup that the jobs before it mix (``pileup.MixedEvents``).
    """
    head = json.dumps({"schema": UNIT_SCHEMA, "unit": unit.name, "index": unit.index})
    first = {"task": FIRST_TASK} if unit.levels else {}
    documents = [_job(node_name(index), job, first) for index, job in enumerate(unit.jobs)]
    documents += [document for level in unit.levels for document in _level_jobs(level)]
    for document in documents:
        if document["node"] in mixed_before:
            document["mixed_before"] = mixed_before[document["node"]]
    jobs = ",\n".join(json.dumps(document) for document in documents)
    return f'{head[:-1]}, "jobs": [\n{jobs}\n]}}\n'


def _level_jobs(level: LevelSpec) -> list[Document]:
    return [
        {
            "node": name,
            "task": level.task,
            "events": node.events,
            "reads": reads,
            **({} if node.share is None else {"share": _share(node.share)}),
            "generate": None,
            "files": [],
            "mask": None,
        }
        for (name, reads), node in zip(upstream_names(level), level.nodes, strict=True)
    ]


def _share(share: Share) -> Document:
    return {"part": share.part, "parts": share.parts, "by": "lumis" if share.by_lumi else "events"}


def _job(node: str, job: JobSpec, task: Document) -> Document:
    return {
        "node": node,
        **task,
        "events": job.events,
        "generate": None if job.generate is None else _generate(job.generate),
        "files": [_file(file) for file in job.files],
        "mask": None if job.mask is None else lumis.to_json(job.mask),
    }


def _generate(made: GeneratedRange) -> Document:
    return {
        "run": made.run,
        "first_event": made.first_event,
        "last_event": made.last_event,
        "first_lumi": made.first_lumi,
        "last_lumi": made.last_lumi,
        "events_per_lumi": made.events_per_lumi,
    }


def _file(file: JobFile) -> Document:
    return {
        "lfn": file.lfn,
        "size_bytes": file.size_bytes,
        "events": file.events,
        "first_event": file.first_event,
        "last_event": file.last_event,
        "parents": list(file.parents),
    }
