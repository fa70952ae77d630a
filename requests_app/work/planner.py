"""Planning the next round: what the ledger says is left becomes jobs, units, blocks, a DAG directory and rows (spec 4.5).

No transaction is open while services are asked and files are written; the rows come last, in one (ADR 0013).
The same ledger gives the same DAG id, so a crash in between leaves a directory that the next attempt replaces.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import structlog
from django.db import transaction

from dags_app.failure_rules import rules_in_force, rules_json
from dags_app.models import DAG
from dags_app.planning import blocks, sizing, work_units, writer
from dags_app.planning.levels import edge_count, level_plans
from dags_app.planning.pileup import jobs_at, mixed_after, pileup_sites
from dags_app.planning.specs import AccountingSpec, DagLimits, DagSpec, WorkflowSpec, WorkUnitSpec
from dags_app.sandbox import payload_bytes, sandbox_pack
from dags_app.services.plan import WrittenDag, dag_record_ready
from outputs_app.blocks import blocks_open, units_join_blocks
from outputs_app.owning import lumis_take
from outputs_app.values import Membership
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.limits import limit_int
from requests_app.models import InputFile, Round, Workflow
from requests_app.work.block_limits import block_limits
from requests_app.work.input_places import locations_refresh
from requests_app.work.ledger import ledger_check, ledger_of
from requests_app.work.left import LeftOut, jobs_left, record_left_out
from requests_app.work.overrides import with_memory, with_retries
from requests_app.work.pileup import pileup_resolve
from requests_app.work.rounds import job_priority
from requests_app.work.spec import spec_of
from wms2.conf import conf
from wms2.crash import crash_point
from wms2.errors import PlanningRefused
from wms2.words import counted

#: In ``Round.sizing``: events of deterministic pileup that all rounds so far have mixed, by task.
_MIXED = "mixed_before"

log = structlog.get_logger(__name__)


def round_plan(evaluation: Evaluation) -> DAG | None:
    """Plan and write what is left, up to the limits of one DAG; None when nothing is left.

    Raises:
        PlanningRefused: it cannot be planned as asked.
        LedgerViolation: the account is wrong, or the work is claimed already.
        StaleState: another request of the family took the same lumis meanwhile; nothing is recorded.
        ServiceUnavailable: a service needed for planning did not answer.
    """
    workflow = evaluation.request.workflow
    spec = with_memory(spec_of(workflow), evaluation.request)
    ledger = ledger_of(workflow)
    ledger_check(ledger)
    if ledger.work_left:
        locations_refresh(workflow=workflow, spec=spec, fenced=evaluation.fenced)
    left_out = LeftOut()
    jobs = jobs_left(workflow, spec, ledger, left_out)
    if jobs is None:
        return None
    pileup = pileup_resolve(spec)
    mixable = jobs_at(jobs, pileup_sites(spec, pileup, least_fraction=conf().pileup_min_fraction))
    grouped = work_units.group_jobs(
        mixable,
        jobs_per_work_unit=limit_int("jobs_per_work_unit"),
        bytes_per_event=sizing.bytes_per_event(spec),
        levels=level_plans(spec),
    )
    knobs = conf()
    filled = work_units.fill_dag(grouped, max_units=knobs.max_work_units_per_dag, max_nodes=knobs.max_nodes_per_dag)
    if left_out:
        with evaluation.fenced():
            record_left_out(workflow, spec, left_out)
    if left_out.lumis:
        first = left_out.lumis[0]
        alert(
            evaluation.request,
            "lumis_refused",
            f"refused: {counted(len(left_out.lumis), 'lumi')}, e.g. {first.run}:{first.lumi}: {first.reason}",
        )
    if not filled.units:
        return None
    _refuse_too_long(spec, filled.units)
    index = workflow.rounds.count()
    dag_id = uuid.uuid5(workflow.pk, f"round {index}")
    placed = _blocks(workflow, filled.units)
    dag_spec = DagSpec(
        dag_id=str(dag_id),
        workflow_id=str(workflow.pk),
        instance=knobs.instance,
        round_index=index,
        workflow=spec,
        units=placed.units,
        limits=with_retries(_limits(), evaluation.request),
        max_wall_seconds=knobs.max_wall_seconds,
        pileup=pileup,
        mixed_before=_mixed_before(workflow),
        accounting=AccountingSpec(knobs.accounting_group, knobs.accounting_group_user, knobs.environment == "production"),
    )
    crash_point("plan.claimed")
    written = _write(evaluation, dag_spec, dag_id)
    crash_point("plan.called")
    dag = _record(evaluation, workflow, dag_spec, placed, written)
    crash_point("plan.recorded")
    log.info(
        "round planned",
        request_name=evaluation.request.request_name,
        dag_id=str(dag.pk),
        round=index,
        work_units=len(placed.units),
        more=filled.more,
    )
    return dag


def _refuse_too_long(spec: WorkflowSpec, units: tuple[WorkUnitSpec, ...]) -> None:
    """Jobs that are expected to be ended by the wall-clock cap, at whichever level, are not begun.

    Raises:
        PlanningRefused: names the task and what to change.
    """
    cap = conf().max_wall_seconds
    problem = sizing.too_long(sizing.level_walls(spec, units, max_wall_seconds=cap), max_wall_seconds=cap)
    if problem is not None:
        raise PlanningRefused(problem)


def _mixed_before(workflow: Workflow) -> dict[int, int]:
    """Where the round before ended in its deterministic pileup, by task."""
    last = workflow.rounds.order_by("-index").first()
    return {int(task): int(events) for task, events in (last.sizing.get(_MIXED) or {}).items()} if last else {}


def _limits() -> DagLimits:
    knobs = conf()
    return DagLimits(
        max_merge_groups=limit_int("dag_max_merge_groups"),
        max_processing=knobs.dag_max_processing,
        max_merge=knobs.dag_max_merge,
        max_cleanup=knobs.dag_max_cleanup,
        processing_retries=knobs.retry_processing,
        merge_retries=knobs.retry_merge,
        cooloff_seconds=knobs.cooloff_base_seconds,
        max_idle_jobs=knobs.dag_max_idle_jobs,
        status_interval_seconds=knobs.dag_status_interval_seconds,
        log_scan_interval_seconds=knobs.dag_log_scan_interval_seconds,
        no_cpu_seconds=knobs.job_no_cpu_seconds,
        held_seconds=knobs.job_held_seconds,
    )


def _blocks(workflow: Workflow, units: tuple[WorkUnitSpec, ...]) -> blocks.BlockPlan:
    known = blocks_open(workflow_id=workflow.pk)
    return blocks.assign_blocks(
        units,
        open_blocks=[
            blocks.OpenBlock(key=f"open:{name}", dataset=name, ordinal=b.open_index, bytes=b.planned_bytes)
            for name, b in known.items()
            if b.open_index is not None
        ],
        block_counts={name: b.blocks for name, b in known.items()},
        target_bytes=block_limits(workflow).max_bytes,
    )


def round_plan_leftovers(dag: DAG) -> None:
    """Take away what other attempts at planning the DAG have left, also those that died: it is recorded, so no other can be."""
    writer.remove_leftovers(Path(dag.submit_dir), parent=_parent(dag.workflow))


def _parent(workflow: Workflow) -> Path:
    return conf().submit_root / workflow.request_id


def _write(evaluation: Evaluation, dag_spec: DagSpec, dag_id: uuid.UUID) -> WrittenDag:
    workflow = evaluation.request.workflow
    parent = _parent(workflow)
    programs = writer.Programs(
        payload=payload_bytes(),
        sandbox=sandbox_pack(workflow=dag_spec.workflow, psets=workflow.psets),
        rules=rules_json(rules_in_force(conf())),
    )
    try:
        directory = writer.write_dag_directory(dag_spec, programs, parent=parent)
    except writer.DagDirectoryConflict:
        if DAG.objects.filter(pk=dag_id).exists():
            raise
        # Left by an attempt that was killed before its rows, and something it rests on has changed since. It stays until this one
        # is recorded: an evaluation that was replaced must not take away what its successor has recorded in between.
        place = parent / f"{writer.AGAIN}{evaluation.lease_epoch}"
        directory = writer.write_dag_directory(dag_spec, programs, parent=place)
    units = dag_spec.units
    processing = sum(unit.processing_nodes for unit in units)
    return WrittenDag(
        dag_id=dag_id,
        submit_dir=str(directory.directory),
        files_sha256=directory.files_sha256,
        node_counts={"Processing": processing, "Merge": len(units), "Cleanup": len(units), "Landing": len(units)},
        total_edges=sum(edge_count(unit) for unit in units),
        merge_groups=min(dag_spec.limits.max_merge_groups, len(units)),
    )


def _record(evaluation: Evaluation, workflow: Workflow, dag_spec: DagSpec, placed: blocks.BlockPlan, written: WrittenDag) -> DAG:
    lfns = {claim.lfn for unit in placed.units for claim in unit.claims if claim.lfn}
    files = {lfn: (pk, events) for lfn, pk, events in _file_ids(workflow, lfns)}
    planned_with = asdict(dag_spec.workflow.resources)
    if mixed := mixed_after(dag_spec):
        planned_with[_MIXED] = {str(task): events for task, events in mixed.items()}
    with transaction.atomic():
        # The many rows first: a verb need not wait for them. What changed meanwhile takes all back when the request is locked.
        round_ = Round.objects.create(workflow=workflow, index=dag_spec.round_index, sizing=planned_with)
        dag, rows = dag_record_ready(
            workflow_id=workflow.pk,
            workflow_number=workflow.number,
            round_id=round_.pk,
            instance=dag_spec.instance,
            written=written,
            units=placed.units,
            files=files,
            priority=job_priority(evaluation),
        )
        with evaluation.fenced():  # blocks and workflow are locked after the request, as verbs do it
            ids = {unit.index: row.pk for unit, row in zip(placed.units, rows, strict=True)}
            ordinals = _ordinals(workflow, placed)
            units_join_blocks(
                workflow_id=workflow.pk,
                memberships=[
                    Membership(ids[a.unit_index], a.dataset, ordinals[a.block_key], a.bytes) for a in placed.assignments
                ],
            )
            offsets = _move_offsets(workflow, placed)
    for name, value in offsets.items():
        setattr(workflow, name, value)
    return DAG.objects.select_related("schedd", "workflow", "round").get(pk=dag.pk)


def _file_ids(workflow: Workflow, lfns: set[str]) -> Iterator[tuple[str, int, int]]:
    wanted = sorted(lfns)
    for start in range(0, len(wanted), 5000):
        rows = InputFile.objects.filter(workflow=workflow, lfn__in=wanted[start : start + 5000])
        yield from rows.values_list("lfn", "pk", "events")


def _ordinals(workflow: Workflow, placed: blocks.BlockPlan) -> dict[str, int]:
    known = {f"open:{name}": b.open_index for name, b in blocks_open(workflow_id=workflow.pk).items() if b.open_index is not None}
    return known | {block.key: block.ordinal for block in placed.new_blocks}


def _move_offsets(workflow: Workflow, placed: blocks.BlockPlan) -> dict[str, int]:
    made = [job.generate for unit in placed.units for job in unit.jobs if job.generate is not None]
    total_nodes = sum(unit.processing_nodes + work_units.EXTRA_NODES for unit in placed.units)
    fields = {"total_nodes": workflow.total_nodes + total_nodes}
    if made:
        fields["next_first_event"] = max(g.last_event for g in made) + 1
        fields["next_first_lumi"] = max(g.last_lumi for g in made) + 1
        lumis_take(request_id=workflow.request.pk, first=min(g.first_lumi for g in made), after=fields["next_first_lumi"])
    Workflow.objects.filter(pk=workflow.pk).update(**fields)
    return fields
