"""Requests by the thousand, each with a workflow, a transition, an event, an audit entry; some with a DAG, units, effects."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

from dags_app.models import DAG, DAGHistory, DAGStatus, WorkUnit, WorkUnitState
from outputs_app.models import Effect, EffectKind, EffectState, OutputDataset, ProcessingBlock
from requests_app.models import Event, HoldCode, Request, RequestStatus, RequestTransition, Round, Workflow
from requests_app.work.spec import spec_to_json
from tests.support.rows import generation_spec
from wms2.models import AuditEntry

S = RequestStatus
#: One request in so many has a DAG with two units, a block and an effect.
WITH_WORK = 10
#: One in so many is held, or has a refused effect: a few, as in a real afternoon.
HELD, REFUSED = 2000, 500
_STATUSES = (S.COMPLETED, S.COMPLETED, S.ARCHIVED, S.ARCHIVED, S.ABORTED, S.QUEUED, S.ACTIVE, S.COMPLETED)
_BATCH = 2000


def build(number: int) -> None:
    """``number`` requests; documents and PSets are as large as small real ones."""
    now = timezone.now()
    for first in range(0, number, _BATCH):
        indices = range(first, min(number, first + _BATCH))
        requests = Request.objects.bulk_create(_request(index, now - timedelta(minutes=index)) for index in indices)
        workflows = Workflow.objects.bulk_create(_workflow(request) for request in requests)
        RequestTransition.objects.bulk_create(
            RequestTransition(request=row, to_status=S.SUBMITTED, actor="tester", reason="imported") for row in requests
        )
        Event.objects.bulk_create(Event(request=row, kind="request.status", data={"to": "submitted"}) for row in requests)
        AuditEntry.objects.bulk_create(
            AuditEntry(actor="tester", action="request_import", target_type="request", target=row.request_name)
            for row in requests
        )
        _work([w for index, w in zip(indices, workflows, strict=True) if index % WITH_WORK == 0], first)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _request(index: int, moment: datetime) -> Request:
    status = S.HELD if index % HELD == 7 else _STATUSES[index % len(_STATUSES)]
    held = {"hold_code": HoldCode.THRESHOLD, "hold_reason": "too many failed"} if status == S.HELD else {}
    return Request(
        request_name=f"tester_task_{index:06d}_v1", requestor=f"requestor{index % 50}", group="DATAOPS", status=status,
        request_data={"Document": f"{index:032d}" * 60}, input_dataset=f"/Input{index % 3000}/Era-v1/RAW",
        campaign=f"Campaign{index % 40}", prep_id=f"PREP-{index}", priority=index * 7 % 200_000, urgent=index % 1000 == 0,
        status_since=moment, queued_at=moment, **held,
    )  # fmt: skip


def _workflow(request: Request) -> Workflow:
    spec = spec_to_json(generation_spec(request.request_name))
    return Workflow(request=request, splitting_algo="EventBased", spec=spec, psets={"GenSim": request.request_name * 400})


def _work(workflows: list[Workflow], first: int) -> None:
    rounds = Round.objects.bulk_create(Round(workflow=workflow, index=0) for workflow in workflows)
    dags = DAG.objects.bulk_create(_dag(round_, first + index) for index, round_ in enumerate(rounds))
    DAGHistory.objects.bulk_create(DAGHistory(dag=dag, event_type="created", to_status=dag.status) for dag in dags)
    WorkUnit.objects.bulk_create(_unit(dag, index) for dag in dags for index in range(2))
    datasets = OutputDataset.objects.bulk_create(
        OutputDataset(workflow=dag.workflow, name=f"/Primary{dag.pk}/Era-v1/GEN", step="Step1", module="out", tier="GEN")
        for dag in dags
    )
    blocks = ProcessingBlock.objects.bulk_create(
        ProcessingBlock(
            workflow=d.workflow, dataset=d, block_index=0, dataset_name=d.name, dbs_block_name=f"{d.name}#{uuid.uuid4()}"
        )
        for d in datasets
    )
    Effect.objects.bulk_create(_effect(block, first + index) for index, block in enumerate(blocks))


def _dag(round_: Round, number: int) -> DAG:
    key = uuid.uuid4()
    return DAG(
        id=key, directory_id=key, workflow=round_.workflow, round=round_, dag_file_path="/nowhere/workflow.dag", instance="test",
        submit_dir="/nowhere", schedd_name="schedd", dagman_cluster_id=str(number), attempt=1, fence=1, total_work_units=2,
        status=DAGStatus.COMPLETED, submitted_at=timezone.now(),
    )  # fmt: skip


def _unit(dag: DAG, index: int) -> WorkUnit:
    return WorkUnit(
        workflow=dag.workflow, round=dag.round, dag=dag, index=index, name=f"mg_{index:06d}", state=WorkUnitState.DONE, jobs=8,
        events=800, site="T1_US_FNAL", fence=1, manifest_sha256="a",
    )  # fmt: skip


def _effect(block: ProcessingBlock, number: int) -> Effect:
    request = block.workflow.request
    return Effect(
        request=request, block=block, kind=EffectKind.DBS_BLOCK, key=f"dbs_block:{block.pk}", payload={"files": "x" * 2000},
        state=EffectState.REFUSED if number % (REFUSED // WITH_WORK) == 3 else EffectState.DONE,
    )  # fmt: skip
