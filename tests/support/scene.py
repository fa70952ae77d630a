"""A busy afternoon as rows: requests in many statuses, some of which need an operator. Nothing of it runs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from dags_app.models import DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.payload.contract import layout
from outputs_app.models import BlockStatus, BlockWorkUnit, Effect, EffectKind, EffectState, OutputDataset, ProcessingBlock
from requests_app.models import LEADER_LEASE, HoldCode, Lease, Request, RequestStatus, RequestTransition, Workflow
from sites_app.models import QueueChange, Schedd, Site
from tests.support.rows import dag_row, generation_spec, output_spec, request_row, schedd_row, workflow_row
from tests.support.scene_failures import failures
from wms2.audit import audit
from wms2.models import AuditEntry

S = RequestStatus
ERA = "RunIII2024Summer24"
SITES = ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue", "T2_DE_DESY")
WAY = (S.SUBMITTED, S.QUEUED, S.PLANNING, S.ACTIVE)
REASONS = {
    S.SUBMITTED: "imported",
    S.QUEUED: "workflow and input rows committed",
    S.PLANNING: "slot taken",
    S.ACTIVE: "DAGMan job submitted",
    S.COMPLETED: "all events done, all blocks archived",
}


@dataclass(frozen=True)
class World:
    """Where the scene plays."""

    now: datetime
    schedd: Schedd
    directory: Path


@dataclass(frozen=True)
class Units:
    """Work units of a DAG: so many in all, done, and failed in it."""

    total: int
    done: int
    failed: int = 0


@dataclass(frozen=True)
class Scene:
    """The requests that tests name."""

    held: Request
    refused: Request
    unaccounted: Request
    active: Request
    completed: Request
    queued: Request
    new: Request


def build(directory: Path) -> Scene:
    """Make all rows; below ``directory`` what DAGMan would have written."""
    now = timezone.now()
    for name in SITES:
        Site.objects.get_or_create(name=name)
    schedd = schedd_row("schedd1@wms2.example", last_answer_at=now, dagmans_running=31)
    silent = schedd_row("schedd2@wms2.example", unreachable_since=now - timedelta(minutes=22), last_error="timed out after 20 s")
    QueueChange.objects.create(schedd=silent, old_birthdate=1_700_000_000, new_birthdate=1_760_000_000, seen_at=now)
    cycle = {"cycle_started_at": now.isoformat(), "cycle_ended_at": now.isoformat(), "seconds": 0.4, "requests": 9}
    Lease.objects.update_or_create(
        name=LEADER_LEASE,
        defaults={"owner": "worker-1", "epoch": 3, "acquired_at": now, "heartbeat_at": now, "data": cycle,
                  "expires_at": now + timedelta(hours=6)},
    )  # fmt: skip
    world = World(now, schedd, directory)
    held = active_request(world, f"cmsunified_task_HIG-{ERA}GS-00412__v1_T_260901_101500_5512", Units(120, done=87, failed=33))
    failures(held, now)
    _hold(held, now - timedelta(hours=3, minutes=12), "33 of 120 work units were not done (27.5 %, limit 20 %)")
    refused = active_request(world, f"cmsunified_task_EXO-{ERA}DRPremix-00077__v1_T_260902_094113_2204", Units(40, done=24))
    _stuck_effect(refused, now)
    unaccounted = active_request(world, f"pdmvserv_task_BPH-{ERA}NanoAOD-00023__v1_T_260903_120000_1111", Units(24, done=9))
    _unaccounted(unaccounted, now)
    active = active_request(
        world, f"cmsunified_task_TOP-{ERA}wmLHEGS-00190__v1_T_260903_133001_7654", Units(320, done=197, failed=4)
    )
    completed = _completed(world, f"pdmvserv_task_SMP-{ERA}MiniAOD-00005__v1_T_260830_080000_9")
    queued = _plain(
        now, S.QUEUED, f"pdmvserv_task_B2G-{ERA}GS-00301__v1_T_260904_070000_42", 110_000, "a free DAG slot: 300 of 300 in use"
    )
    _plain(now, S.QUEUED, f"pdmvserv_task_SUS-{ERA}GS-00018__v1_T_260904_071000_43", 85_000, "its turn: place 2 in the queue")
    _plain(now, S.SUBMITTED, "pdmvserv_ReReco_Muon0_2024H_T_260904_080000_1", 250_000, "DBS to answer", urgent=True)
    new = _plain(now, S.NEW, "tester_StepChain_try_T_260904_081500_1", 100_000, "")
    stopping = active_request(world, f"pdmvserv_task_MUO-{ERA}GS-00002__v1_T_260904_060000_77", Units(12, done=2))
    waits = "DAGMan job to leave the queue"
    moved(stopping, S.STOPPING, now - timedelta(minutes=2), "dan", "wrong pile-up", stop_intent="abort", waiting_for=waits)
    return Scene(held, refused, unaccounted, active, completed, queued, new)


def _plain(now: datetime, status: RequestStatus, name: str, priority: int, waits: str, **fields: Any) -> Request:
    since = now - timedelta(minutes=47)
    request = request_row(
        status, request_name=name, campaign=ERA, requestor="pdmvserv", prep_id=_prep(name), priority=priority,
        waiting_for=waits, status_since=since, **fields,
    )  # fmt: skip
    Request.objects.filter(pk=request.pk).update(created_at=since - timedelta(minutes=5))
    way = [S.NEW] if status == S.NEW else list(WAY[: WAY.index(status) + 1])
    _history(request, way, since - timedelta(minutes=5), since)
    return request


def _prep(name: str) -> str:
    parts = name.split("task_")
    return parts[1].split("__")[0] if len(parts) > 1 else ""


def active_request(world: World, name: str, units: Units) -> Request:
    begun, waits = world.now - timedelta(hours=19), f"DAGMan job: {units.done} of {units.total} work units done"
    request = request_row(
        S.ACTIVE, request_name=name, campaign=ERA, requestor="cmsunified", group="DATAOPS", prep_id=_prep(name),
        priority=110_000, status_since=begun, waiting_for=waits,
        warnings=["TimePerEvent is the requester's guess; the first round measures it"],
    )  # fmt: skip
    Request.objects.filter(pk=request.pk).update(created_at=begun - timedelta(hours=2))
    _history(request, WAY, begun - timedelta(hours=2), begun)
    tag, events = uuid.uuid4().hex[:6], units.total * 1600
    spec = generation_spec(name, events=events, outputs=(output_spec(tag), output_spec(tag, tier="MINIAODSIM")))
    workflow = workflow_row(request, spec, next_first_event=1 + events, next_first_lumi=1 + events // 10)
    running = min(10, units.total - units.done - units.failed)
    dag = dag_row(
        workflow, DAGStatus.RUNNING, schedd=world.schedd, schedd_name=world.schedd.name, total_work_units=units.total,
        units_done=units.done, attempt=1, submitted_at=begun, total_nodes=units.total * 11, observed_at=world.now,
        node_counts={"Processing": units.total * 8}, nodes_done=units.done, nodes_failed=units.failed,
        nodes_running=running * 6, nodes_idle=running * 2, merge_groups=10, observed={"units_running": running},
        jobs={"roles": {"processing": {"running": running * 6, "idle": running * 2}},
              "sites": {SITES[0]: {"running": running * 6, "idle": running * 2}}},
        submit_dir=str(world.directory / name / "round_0"),
    )  # fmt: skip
    _units(workflow, dag, units, begun)
    _written(dag, units, running)
    return request


def _units(workflow: Workflow, dag: DAG, units: Units, begun: datetime) -> None:
    rows = []
    for index in range(units.total):
        row = WorkUnit(
            workflow=workflow, round=dag.round, dag=dag, index=index, name=f"mg_{index:06d}", jobs=8, events=1600,
            estimated_output_bytes=2_400_000_000,
        )  # fmt: skip
        if index < units.done:
            row.state, row.site, row.manifest_sha256, row.fence = WorkUnitState.DONE, SITES[index % 3], "a" * 64, dag.fence
            row.done_at = begun + timedelta(minutes=index)
        rows.append(row)
    made = WorkUnit.objects.bulk_create(rows)
    WorkUnitClaim.objects.bulk_create(
        WorkUnitClaim(
            unit=unit, kind=WorkUnitClaim.KIND_GENERATED, scope=workflow.number, run=1, events=1600,
            first=1 + 1600 * unit.index, last=1600 * (unit.index + 1),
        )
        for unit in made
    )  # fmt: skip
    for dataset in OutputDataset.objects.filter(workflow=workflow):
        _blocks(workflow, dataset, made)


def _written(dag: DAG, units: Units, running: int) -> None:
    """DAGMan's status file and the end of its log."""
    directory = Path(dag.submit_dir)
    directory.mkdir(parents=True, exist_ok=True)
    states = [5] * units.done + [6] * units.failed + [3] * running
    states += [1] * (units.total - len(states))
    counts = {"Total": units.total, "Done": units.done, "Pre": 0, "Queued": running, "Post": 0, "Ready": states.count(1),
              "Unready": 0, "Futile": 0, "Failed": units.failed}  # fmt: skip
    numbers = "".join(f"  Nodes{name} = {number};\n" for name, number in counts.items())
    head = '[\n  Type = "DagStatus";\n  Timestamp = 1;\n  DagStatus = 3;\n'
    ads = [f"{head}{numbers}  JobProcsHeld = 0;\n  JobProcsIdle = 0;\n]\n"]
    for index, state in enumerate(states):
        details = "Node failed with return code 1" if state == 6 else ""
        ads.append(
            f'[\n  Type = "NodeStatus";\n  Node = "mg_{index:06d}";\n  NodeStatus = {state};\n  StatusDetails = "{details}";\n'
            "  RetryCount = 0;\n  JobProcsQueued = 0;\n  JobProcsHeld = 0;\n]\n"
        )
    ads.append('[\n  Type = "StatusEnd";\n  EndTime = 2;\n  NextUpdate = 3;\n]\n')
    (directory / layout.OUTER_STATUS).write_text("".join(ads))
    lines = [f"09/04/26 08:{minute:02d}:11 Of {units.total} nodes total:" for minute in range(30)]
    lines += [f"09/04/26 08:31:11  Done {units.done}, Queued {running}, Ready {states.count(1)}, Failed {units.failed}"]
    (directory / f"{layout.OUTER_DAG}.dagman.out").write_text("\n".join(lines) + "\n")
    (directory / layout.JOBSTATE_LOG).write_text("\n".join(_tries(dag, states)) + "\n")


def _tries(dag: DAG, states: list[int]) -> list[str]:
    """DAGMan's job-state log: ten units at a time, an hour or so each."""
    begun = int(dag.workflow.request.status_since.timestamp())
    lines = [f"{begun} INTERNAL *** DAGMAN_STARTED {dag.dagman_cluster_id}.0 ***"]
    for index, state in enumerate(states):
        at, took = begun + index // 10 * 3300, 2400 + 271 * (index % 7)
        lines += [f"{at} mg_{index:06d} SUBMIT {index}.0 - - {index}"] if state != 1 else []
        lines += [f"{at + took} mg_{index:06d} JOB_{'SUCCESS 0' if state == 5 else 'FAILURE 1'} - - 1"] if state in (5, 6) else []
    return lines


def _blocks(workflow: Workflow, dataset: OutputDataset, units: list[WorkUnit]) -> None:
    half = max(1, len(units) // 2)
    for index, part in enumerate((units[:half], units[half:])):
        if not part:
            continue
        full = index == 0 and all(unit.state == WorkUnitState.DONE for unit in part)
        block = ProcessingBlock.objects.create(
            workflow=workflow, dataset=dataset, block_index=index, dataset_name=dataset.name,
            dbs_block_name=f"{dataset.name}#{uuid.uuid4()}", dbs_block_open=True, dbs_block_closed=full,
            total_work_units=len(part), sealed_at=timezone.now() if index == 0 else None, origin_rse="T1_US_FNAL_Disk",
            tape_rule_id=uuid.uuid4().hex if full else "", status=BlockStatus.ARCHIVED if full else BlockStatus.OPEN,
        )  # fmt: skip
        BlockWorkUnit.objects.bulk_create(
            BlockWorkUnit(block=block, unit=unit, dataset=dataset, done=unit.state == WorkUnitState.DONE, size_bytes=10**9)
            for unit in part
        )
        _done_effects(workflow.request, block)


def _done_effects(request: Request, block: ProcessingBlock) -> None:
    kinds = (EffectKind.RUCIO_BLOCK, EffectKind.RUCIO_FILES, EffectKind.RUCIO_PROTECT, EffectKind.DBS_BLOCK)
    common = {"request": request, "block": block, "state": EffectState.DONE, "attempts": 1, "done_at": timezone.now()}
    Effect.objects.bulk_create(Effect(kind=kind, key=f"{kind}:{block.pk}", **common) for kind in kinds)


def _history(request: Request, way: Any, begun: datetime, ended: datetime) -> None:
    old, step = "", (ended - begun) / max(1, len(way) - 1)
    for index, status in enumerate(way):
        row = RequestTransition.objects.create(
            request=request, from_status=old, to_status=status, actor="pdmvserv" if index == 0 else "lifecycle",
            reason=REASONS.get(status, "stored as new"),
        )  # fmt: skip
        RequestTransition.objects.filter(pk=row.pk).update(at=begun + index * step)
        old = status
    audit(actor="pdmvserv", action="request_import", target=request.request_name, status=str(way[0]))
    AuditEntry.objects.filter(target=request.request_name).update(at=begun)


def moved(request: Request, to: RequestStatus, at: datetime, actor: str, reason: str, **fields: Any) -> None:
    Request.objects.filter(pk=request.pk).update(status=to, status_since=at, **{"waiting_for": "", **fields})
    row = RequestTransition.objects.create(request=request, from_status=request.status, to_status=to, actor=actor, reason=reason)
    RequestTransition.objects.filter(pk=row.pk).update(at=at)
    if actor != "lifecycle":
        audit(actor=actor, action="request_abort", target=request.request_name, reason=reason)
        AuditEntry.objects.filter(actor=actor, target=request.request_name).update(at=at)
    request.refresh_from_db()


def _hold(request: Request, at: datetime, why: str) -> None:
    DAG.objects.filter(workflow__request=request).update(status=DAGStatus.PARTIAL, completed_at=at)
    moved(request, S.PARTIAL, at, "lifecycle", "the DAG ended with work units not done")
    moved(request, S.HELD, at + timedelta(seconds=5), "lifecycle", why, hold_code=HoldCode.THRESHOLD, hold_reason=why)


def _stuck_effect(request: Request, now: datetime) -> None:
    block = ProcessingBlock.objects.filter(workflow__request=request).order_by("block_index").first()
    common = {"request": request, "block": block}
    Effect.objects.create(
        **common, kind=EffectKind.DBS_BLOCK, key=f"dbs_block:late:{request.pk}", state=EffectState.REFUSED, attempts=1,
        first_failed_at=now - timedelta(minutes=52),
        last_error="dbs register_block: it is registered, and not as it should be: it lacks 1 files, first f1.root",
    )  # fmt: skip
    Effect.objects.create(
        **common, kind=EffectKind.RUCIO_PROTECT, key=f"rucio_protect:late:{request.pk}", state=EffectState.PENDING, attempts=3,
        next_attempt_at=now + timedelta(minutes=27), last_error="rucio add_rules: HTTP 503 Service Unavailable",
    )  # fmt: skip
    Request.objects.filter(pk=request.pk).update(alert_code="effect_refused", alerted_at=now - timedelta(minutes=51))
    request.refresh_from_db()


def _unaccounted(request: Request, now: datetime) -> None:
    unit = WorkUnit.objects.filter(workflow__request=request, state=WorkUnitState.PLANNED).order_by("index").first()
    assert unit is not None
    unit.state, unit.problem = WorkUnitState.DONE_UNACCOUNTED, "merge_output.json is missing"
    unit.problem_since = now - timedelta(minutes=6)
    unit.save()
    Request.objects.filter(pk=request.pk).update(alert_code="units_unaccounted", alerted_at=unit.problem_since)
    request.refresh_from_db()


def _completed(world: World, name: str) -> Request:
    now, request = world.now, active_request(world, name, Units(30, done=30))
    dag = DAG.objects.get(workflow__request=request)
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.PARTIAL, units_done=27, completed_at=now - timedelta(hours=9))
    dag_row(
        dag.workflow, DAGStatus.COMPLETED, kind=DAGKind.FAILURE_RESCUE, parent_dag=dag, round=dag.round, schedd=world.schedd,
        schedd_name=world.schedd.name, total_work_units=30, units_done=30, nodes_done=30, attempt=1,
        submitted_at=now - timedelta(hours=8), completed_at=now - timedelta(hours=6), submit_dir=dag.submit_dir,
    )  # fmt: skip
    for block in ProcessingBlock.objects.filter(workflow=dag.workflow):
        ProcessingBlock.objects.filter(pk=block.pk).update(
            status=BlockStatus.ARCHIVED, tape_rule_id=uuid.uuid4().hex, dbs_block_closed=True, sealed_at=now - timedelta(hours=6)
        )
    ended = now - timedelta(hours=5)
    moved(request, S.COMPLETED, ended, "lifecycle", REASONS[S.COMPLETED], completed_at=ended)
    return request
