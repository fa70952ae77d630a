"""``job.json`` and ``unit.json``: what the payload is told, as JSON text with a fixed order (``docs/payload-contract.md``)."""

from __future__ import annotations

import json
from typing import Any

from dags_app.planning import layout, lumis
from dags_app.planning.specs import DagSpec, GeneratedRange, JobFile, JobSpec, StepSpec, WorkUnitSpec
from dags_app.planning.work_units import node_name

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
            }
            for output in workflow.outputs
        ],
        **({"trust_pileup_sitelists": workflow.trust_pileup_sitelists} if spec.pileup else {}),
        "merge": {
            "min_bytes": workflow.min_merge_bytes,
            "max_bytes": workflow.max_merge_bytes,
            "max_events": workflow.max_merge_events,
        },
    }
    return json.dumps(document, indent=1) + "\n"


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


def unit_document(unit: WorkUnitSpec) -> str:
    """The jobs of one unit, one to a line."""
    head = json.dumps({"schema": UNIT_SCHEMA, "unit": unit.name, "index": unit.index})
    jobs = ",\n".join(json.dumps(_job(node_name(index), job)) for index, job in enumerate(unit.jobs))
    return f'{head[:-1]}, "jobs": [\n{jobs}\n]}}\n'


def _job(node: str, job: JobSpec) -> Document:
    return {
        "node": node,
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
