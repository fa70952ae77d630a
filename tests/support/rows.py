"""Builders of rows: each makes the smallest valid thing and takes what the test is about as keywords."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone

from dags_app.models import DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitState
from dags_app.planning.specs import (
    GenerationSpec,
    InputSpec,
    OutputSpec,
    ResourceSpec,
    SplittingAlgo,
    SplittingSpec,
    StepSpec,
    WorkflowSpec,
)
from outputs_app.models import (
    BlockWorkUnit,
    Drift,
    DriftKind,
    Effect,
    EffectKind,
    EffectState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from outputs_app.services import datasets_ensure, units_register
from outputs_app.values import BlockLimits, DatasetRecord, UnitOutputs
from requests_app.models import HoldCode, Request, RequestStatus, Round, StopIntent, Workflow
from requests_app.work.spec import spec_to_json
from sites_app.models import Pool, Schedd, ScheddState
from wms2.conf import conf

_numbers = itertools.count(1)


def request_row(status: RequestStatus = RequestStatus.SUBMITTED, **fields: Any) -> Request:
    """A request in any status, consistent with the row's own constraints."""
    values: dict[str, Any] = {
        "request_name": f"tester_Request_{next(_numbers)}",
        "requestor": "tester",
        "request_data": {},
        "status": status,
        "queued_at": timezone.now(),
    }
    if status == RequestStatus.HELD:
        values |= {"hold_code": HoldCode.OPERATOR, "hold_reason": "for a test"}
    if status == RequestStatus.STOPPING:
        values |= {"stop_intent": StopIntent.ABORT}
    return Request.objects.create(**values | fields)


def output_spec(name: str = "Tester", tier: str = "GEN-SIM", step: str = "GenSim", module: str = "RAWSIMoutput") -> OutputSpec:
    """A kept output; dataset /Primary<name>/Era-Proc-v1/<tier>."""
    primary = f"Primary{name}"
    return OutputSpec(
        step=step,
        module=module,
        tier=tier,
        dataset=f"/{primary}/Era-Proc-v1/{tier}",
        merged_lfn_base=f"/store/mc/Era/{primary}/{tier}/Proc-v1",
        unmerged_lfn_base=f"/store/unmerged/Era/{primary}/{tier}/Proc-v1",
        primary_dataset=primary,
        processed_dataset="Era-Proc-v1",
        acquisition_era="Era",
        processing_string="Proc",
        processing_version=1,
    )


def generation_spec(request_name: str = "tester", *, events: int = 3200, **fields: Any) -> WorkflowSpec:
    """One step that generates ``events`` events, 100 a job, 10 a lumi."""
    values: dict[str, Any] = {
        "request_name": request_name,
        "campaign": "Campaign",
        "steps": (
            StepSpec(
                1, "GenSim", "config1", "CMSSW_14_0_0", ("el8_amd64_gcc12",), "140X_mc", 1, 0, output_modules=("RAWSIMoutput",)
            ),
        ),
        "outputs": (output_spec(),),
        "resources": ResourceSpec(cores=1, memory_mb=2000, time_per_event_seconds=0.1, size_per_event_kb=10),
        "splitting": SplittingSpec(SplittingAlgo.EVENT_BASED, events_per_job=100),
        "generation": GenerationSpec(run=1, first_event=1, first_lumi=1, events=events, events_per_job=100, events_per_lumi=10),
        "input": None,
        "site_whitelist": ("T1_US_FNAL", "T2_CH_CERN"),
    }
    return WorkflowSpec(**values | fields)


def input_spec(
    request_name: str = "tester", *, algorithm: SplittingAlgo = SplittingAlgo.FILE_BASED, **splitting: Any
) -> WorkflowSpec:
    """One step over an input dataset."""
    return generation_spec(
        request_name,
        generation=None,
        input=InputSpec(dataset="/Input/Era-v1/RAW"),
        splitting=SplittingSpec(algorithm, **({"files_per_job": 1} | splitting)),
    )


def workflow_row(request: Request | None = None, spec: WorkflowSpec | None = None, **fields: Any) -> Workflow:
    """The workflow of a request, with its output datasets."""
    request = request or request_row(RequestStatus.QUEUED)
    spec = spec or generation_spec(request.request_name)
    generation = spec.generation
    values: dict[str, Any] = {
        "request": request,
        "splitting_algo": spec.splitting.algorithm.value,
        "spec": spec_to_json(spec),
        "psets": {step.name: "process = None\n" for step in spec.steps},
        "next_first_event": generation.first_event if generation else 1,
        "next_first_lumi": generation.first_lumi if generation else 1,
        "requested_events": generation.events if generation else 0,
    }
    workflow = Workflow.objects.create(**values | fields)
    workflow.refresh_from_db()
    datasets_ensure(workflow_id=workflow.pk, records=[dataset_record(o) for o in spec.outputs])
    return workflow


def dataset_record(output: OutputSpec) -> DatasetRecord:
    """What DBS would be told."""
    return DatasetRecord(
        name=output.dataset,
        step=output.step,
        module=output.module,
        tier=output.tier,
        primary_dataset=output.primary_dataset,
        processed_dataset=output.processed_dataset,
        acquisition_era=output.acquisition_era,
        processing_version=output.processing_version,
        release="CMSSW_14_0_0",
        pset_hash="abc",
        global_tag="140X_mc",
        prep_id="TEST-1",
        primary_ds_type="mc",
        physics_group="DataOps",
    )


def pool_row(name: str = "pool", **fields: Any) -> Pool:
    """A pool, made when absent; its schedds share a file system of its own."""
    return Pool.objects.get_or_create(name=name, defaults={"collector": "127.0.0.1:1", "file_system": name} | fields)[0]


def schedd_row(name: str = "schedd@test", *, pool: str = "pool", **fields: Any) -> Schedd:
    """An enabled schedd that was checked, and its pool."""
    values: dict[str, Any] = {
        "pool": pool_row(pool), "state": ScheddState.ENABLED, "submit_root": str(conf().submit_root),
        "onboarded_at": timezone.now(),
    }  # fmt: skip
    return Schedd.objects.create(name=name, **values | fields)


def round_row(workflow: Workflow, index: int = 0, **fields: Any) -> Round:
    """A round."""
    return Round.objects.create(workflow=workflow, index=index, **fields)


def dag_row(workflow: Workflow, status: DAGStatus = DAGStatus.RUNNING, **fields: Any) -> DAG:
    """A DAG of the workflow's open round (made when absent)."""
    round_ = fields.pop("round", None) or workflow.rounds.filter(closed_at__isnull=True).first() or round_row(workflow)
    pk = uuid.uuid4()
    values: dict[str, Any] = {
        "id": pk,
        "directory_id": pk,
        "workflow": workflow,
        "round": round_,
        "kind": DAGKind.FRESH,
        "dag_file_path": "/nowhere/workflow.dag",
        "submit_dir": "/nowhere",
        "instance": "test",
        "status": status,
    }
    if status not in (DAGStatus.PLANNING, DAGStatus.READY):
        values |= {"dagman_cluster_id": str(next(_numbers)), "fence": next(_numbers), "submitted_at": timezone.now()}
    return DAG.objects.create(**values | fields)


def unit_row(dag: DAG, index: int = 0, **fields: Any) -> WorkUnit:
    """A planned unit of the DAG."""
    values = {"workflow": dag.workflow, "round": dag.round, "dag": dag, "index": index, "name": f"mg_{index:06d}", "jobs": 8}
    return WorkUnit.objects.create(**values | fields)


def new_block(units: int = 3, done: int = 1, **fields: Any) -> ProcessingBlock:
    """A block with members; each done one has a protected file."""
    workflow = workflow_row(request_row(RequestStatus.ACTIVE))
    dag = dag_row(workflow)
    dataset = OutputDataset.objects.get(workflow=workflow)
    values = {"block_index": 0, "dataset_name": dataset.name, "dbs_block_name": f"{dataset.name}#{uuid.uuid4()}"}
    block = ProcessingBlock.objects.create(workflow=workflow, dataset=dataset, total_work_units=units, **values | fields)
    for index in range(units):
        is_done = index < done
        state = {"state": WorkUnitState.DONE, "manifest_sha256": "a", "fence": 1} if is_done else {}
        unit = unit_row(dag, index, **state)
        BlockWorkUnit.objects.create(block=block, unit=unit, dataset=dataset, done=is_done)
        if is_done:
            OutputFile.objects.create(
                lfn=f"/store/{block.pk}/{index}.root", dataset=dataset, block=block, unit=unit, rse="T1", size_bytes=1,
                adler32="ad", events=1, lumis={}, rule_id=f"rule{index}",
            )  # fmt: skip
    return block


def new_effect(state: EffectState = EffectState.PENDING, **fields: Any) -> Effect:
    values: dict[str, Any] = {"kind": EffectKind.RUCIO_TAPE, "key": str(uuid.uuid4()), "state": state}
    if state is EffectState.CLAIMED:
        values["claim_expires_at"] = timezone.now() + timedelta(minutes=5)
    request = fields.pop("request", None) or request_row(RequestStatus.ACTIVE)
    return Effect.objects.create(request=request, **values | fields)


def drift_row(block: ProcessingBlock, kind: DriftKind = DriftKind.DBS_FILE_INVALID, /, **fields: Any) -> Drift:
    """A difference in a block."""
    now = timezone.now()
    values: dict[str, Any] = {"name": f"/store/{next(_numbers)}.root", "expected": "valid", "found": "invalid", "since": now}
    place = {"request": block.workflow.request, "dataset": block.dataset, "block": block, "last_seen": now}
    return Drift.objects.create(kind=kind, **values | place | fields)


#: That no test passes.
LARGE = BlockLimits(max_bytes=10**12, max_files=500, max_events=10**9, max_wait_seconds=66_400)


def unit_register(*, request_id: uuid.UUID, request_epoch: int, outputs: UnitOutputs, limits: BlockLimits = LARGE) -> None:
    """What one unit brought, alone; raises why it is refused."""
    reported = units_register(request_id=request_id, request_epoch=request_epoch, outputs=[outputs], limits=limits)
    for error in reported.refused.values():
        raise error
