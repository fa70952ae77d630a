"""Planning the next round: gathered, planned, written, recorded (spec 4.5).

What the ledger says is left and everything else that a round rests on is gathered into one value; ``dags_app.planning.plan``
makes a DAG of it; then come the DAG's directory and, last and in one transaction, its rows (ADR 0001). No transaction is open
while services are asked and files are written. The same ledger gives the same DAG id, so a crash in between leaves a directory
that the next attempt replaces.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
from django.db import transaction
from django.db.models.functions import Greatest

from dags_app.failure_rules import rules_in_force
from dags_app.models import DAG
from dags_app.payload.build import payload_bytes
from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.planning import writer
from dags_app.planning.measured import Sizing
from dags_app.planning.pileup import mixed_after
from dags_app.planning.plan import LeftOut, Plan, PlanLimits, PlanningInput, plan
from dags_app.planning.sizing import Sizes, after, sizes_from_json
from dags_app.planning.specs import DagLimits, DagSpec
from dags_app.planning.work_units import EXTRA_NODES, work_of
from dags_app.sandbox import sandbox_pack
from dags_app.services.plan import dag_record_ready
from dags_app.services.submit import accounting, dag_in_queue
from dags_app.services.watch import LONGEST_WALL
from outputs_app.blocks.ownership import lumis_take
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.models import Request, Round, Workflow
from requests_app.work.cmssw_levels import steps_with_levels
from requests_app.work.input_places import locations_refresh
from requests_app.work.input_reading import input_open
from requests_app.work.input_validity import validity_refresh
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from requests_app.work.overrides import DAG_MAX_PROCESSING, limits_of
from requests_app.work.pileup import pileup_resolve
from requests_app.work.production_steps import steps_of, steps_rounded, work_to_step
from requests_app.work.remaining import record_left_out, work_left
from requests_app.work.rounds import dag_discard
from requests_app.work.sizing import round_sizing, stored_sizing
from sites_app.models import Schedd
from sites_app.services import NO_SITE, avoided_sentence, sites_avoided
from wms2.conf import conf
from wms2.errors import NoSite, PlanningRefused
from wms2.runtime.crash import crash_point
from wms2.runtime.in_force import in_force
from wms2.runtime.json_columns import numbered
from wms2.runtime.locks import Fenced
from wms2.web.formatting import counted

#: Jobs of one DAG, of all roles; more work waits for a further round.
MAX_NODES_PER_DAG = 50_000

#: In ``Round.sizing``: events of deterministic pileup that all rounds so far have mixed, by task.
_MIXED = "mixed_before"

log = structlog.get_logger(__name__)


def round_plan(evaluation: Evaluation) -> DAG | None:
    """Plan and write what is left, up to the limits of one DAG; None when nothing is left.

    Raises:
        PlanningRefused: it cannot be planned as asked.
        LedgerViolation: the account is wrong, or the work is claimed already.
        NoSite: every site of every unit is closed or banned now; nothing is written.
        StaleState: another request of the family took the same lumis meanwhile; nothing is recorded.
        ServiceUnavailable: a service needed for planning did not answer.
    """
    waits = input_open(evaluation.request.workflow) is not None  # for more that fills a work unit: merged files are not small
    gathered = _gathered(evaluation.request, evaluation.fenced, full_units=waits)
    if gathered is None:
        evaluation.note(flush=False)
        return None
    given, sizing, ledger = gathered
    planned = plan(given)
    _report_left_out(evaluation, planned)
    if not planned.dag.units:
        return None
    if planned.too_long is not None:
        raise PlanningRefused(planned.too_long)
    avoided = sites_avoided(evaluation.request.workflow.pk)  # as the submission would, before anything is written
    if avoided and all(unit.sites <= avoided.keys() for unit in planned.dag.units):
        everywhere = frozenset().union(*(unit.sites for unit in planned.dag.units))
        raise NoSite(f"{NO_SITE}{avoided_sentence(avoided, everywhere)}")
    crash_point("plan.claimed")
    forgotten = submitted_before(evaluation.request, planned.dag.dag_id)
    other = writer.other_work(forgotten, planned.dag) if forgotten is not None else ""
    if other and (job := dag_in_queue(planned.dag.dag_id, evaluation.request.workflow.created_at)):
        raise PlanningRefused(
            f"{job} runs round {planned.dag.round_index}, of which the database, restored from before it, knows nothing, and"
            f" does other work than is planned now: {other}. Remove strays there, then release: it is given up and planned anew"
        )
    written = _written(evaluation, planned.dag, forgotten)
    crash_point("plan.called")
    rounded = steps_rounded(steps_of(evaluation.request), ledger, [work_of(unit) for unit in planned.dag.units])
    dag = _record(evaluation, planned, sizing, written, given.work.rows, rounded)
    crash_point("plan.recorded")
    log.info(
        "round planned",
        request_name=evaluation.request.request_name,
        dag_id=str(dag.pk),
        round=planned.dag.round_index,
        work_units=len(planned.dag.units),
        more=planned.more,
    )
    if other and forgotten is not None:
        _give_up(evaluation, dag, forgotten, other)
        return round_plan(evaluation)
    return dag


def round_preview(request: Request) -> Plan | None:
    """What the next round would be if no more input came: from what is known, nothing is written; None: nothing is left.

    Raises:
        PlanningRefused, LedgerViolation, ServiceUnavailable: it cannot be planned.
    """
    gathered = _gathered(request, None, full_units=False)
    return plan(gathered[0]) if gathered is not None else None


def round_plan_leftovers(dag: DAG) -> None:
    """Take away what other attempts at planning the DAG have left, also those that died: it is recorded, so no other can be."""
    writer.remove_leftovers(Path(dag.submit_dir), parent=_parent(dag.workflow.request))


# --- gather --------------------------------------------------------------------------------------------------------------


def _gathered(request: Request, fenced: Fenced | None, *, full_units: bool) -> tuple[PlanningInput, Sizing, Ledger] | None:
    """Everything that the round rests on, as it is now; None when nothing is left.

    Args:
        fenced: to write what may still be read of the input, and where it is; without it, the catalogues are not asked.
    """
    workflow = request.workflow
    ledger = ledger_check(ledger_of(workflow))
    if not ledger.work_left or request.complete_early:
        return None
    sizing, most_units = round_sizing(request)
    spec = sizing.workflow
    if fenced is not None:
        if validity_refresh(workflow=workflow, spec=spec, fenced=fenced):
            ledger = ledger_check(ledger_of(workflow))
        locations_refresh(workflow=workflow, spec=spec, fenced=fenced)
    work = work_left(workflow, spec, ledger)
    if work is None:
        return None
    settings, index = conf(), workflow.rounds.count()
    submitted = workflow.dags.order_by("-created_at").values_list("sizes", flat=True).first()  # with its profile's version
    before = workflow.rounds.order_by("-index").values_list("sizing", flat=True).first()
    dag = DagSpec(
        dag_id=dag_id(workflow, index),
        workflow_id=str(workflow.pk),
        instance=settings.instance,
        round_index=index,
        workflow=replace(spec, steps=steps_with_levels(spec.steps)),
        units=(),
        limits=_limits(request),
        pileup=pileup_resolve(spec),
        profile=after(sizes_from_json(submitted or {}), Sizes(profile=sizing.profile)).profile,
        mixed_before={task: int(events) for task, events in numbered((before or {}).get(_MIXED) or {})},
        accounting=accounting(),
    )
    limits = PlanLimits(
        jobs_per_work_unit=sizing.jobs_per_work_unit,
        max_units=most_units,
        max_nodes=MAX_NODES_PER_DAG,
        max_work=(work_to_step(steps_of(request), ledger) if request.adaptive else None) or sys.maxsize,
        max_jobs=None,
        full_units=full_units,
    )
    return PlanningInput(dag, work, limits, sizing.bytes_per_event), sizing, ledger


def _limits(request: Request) -> DagLimits:
    limits = limits_of(request, in_force())
    return DagLimits(
        max_merge_groups=limits.dag_max_merge_groups,
        max_processing=DAG_MAX_PROCESSING,
        processing_retries=limits.retry_processing,
        merge_retries=limits.retry_merge,
        cooloff_seconds=limits.cooloff_base_seconds,
        stage_out_pauses_seconds=conf().stage_out_pauses,
    )


# --- write ---------------------------------------------------------------------------------------------------------------


def dag_id(workflow: Workflow, round_index: int) -> str:
    """Of the DAG of a round; planned again it has the same, and the same directory."""
    return str(uuid.uuid5(workflow.pk, f"round {round_index}"))


def _parent(request: Request) -> Path:
    """On the file system of the schedd that it was admitted to."""
    schedd = request.reserved_schedd
    return Path(schedd.submit_root if schedd is not None else conf().submit_root) / request.request_name


def _written(evaluation: Evaluation, spec: DagSpec, forgotten: Path | None) -> writer.WrittenDag:
    if forgotten is not None:
        return writer.WrittenDag(forgotten, hashlib.sha256((forgotten / layout.SUMS).read_bytes()).hexdigest())
    workflow = evaluation.request.workflow
    parent = _parent(evaluation.request)
    programs = writer.Programs(
        payload=payload_bytes(),
        sandbox=sandbox_pack(workflow=spec.workflow, psets=workflow.psets),
        rules=(json.dumps(to_json(rules_in_force()), indent=1) + "\n").encode(),
    )
    try:
        return writer.write_dag_directory(spec, programs, parent=parent)
    except writer.DagDirectoryConflict:
        if DAG.objects.filter(pk=spec.dag_id).exists():
            raise
        # Left by an attempt that was killed before its rows, and something it rests on has changed since. It stays until this one
        # is recorded: an evaluation that was replaced must not take away what its successor has recorded in between.
        return writer.write_dag_directory(spec, programs, parent=parent / f"{writer.AGAIN}{evaluation.lease_epoch}")


# --- record --------------------------------------------------------------------------------------------------------------


def _report_left_out(evaluation: Evaluation, planned: Plan) -> None:
    """Before the round is, and also when no round follows."""
    left_out: LeftOut = planned.left_out
    if left_out:
        with evaluation.fenced():
            record_left_out(evaluation.request.workflow, planned.dag.workflow, left_out)
    refused = left_out.refused
    if refused:
        first = refused[0]
        what = f"refused: {counted(len(refused), 'lumi')}, e.g. {first.run}:{first.lumi}: {first.reason}"
        alert(evaluation.request, "lumis_refused", what)


def submitted_before(request: Request, dag_id: str) -> Path | None:
    """The directory of the DAG that is about to be planned, if it was submitted and the database restored from before that; also
    below another schedd's root, where jobs of it were found."""
    there = Schedd.objects.filter(orphans__contains=[{"dag_id": dag_id}]).values_list("submit_root", flat=True)
    parents = {_parent(request), *(Path(root) / request.request_name for root in there)}
    places = (place / dag_id for parent in parents for place in (parent, *parent.glob(f"{writer.AGAIN}*")))
    return next((place for place in places if writer.written_fence(place) > request.workflow.fence_counter), None)


def _give_up(evaluation: Evaluation, dag: DAG, forgotten: Path, other: str) -> None:
    """End the round of a forgotten submission, which did other work and is in no queue; no number of it is used again."""
    workflow = evaluation.request.workflow
    units = (json.loads(path.read_text()) for path in forgotten.glob(f"*/{layout.UNIT_FILE}"))
    made = [job["generate"] for unit in units for job in unit["jobs"] if job["generate"]]
    event, lumi = (max((one[last] for one in made), default=0) for last in ("last_event", "last_lumi"))
    with evaluation.fenced():
        dag_discard(dag=dag, reason=f"a submission that the database does not know did other work under its id: {other}")
        Workflow.objects.filter(pk=workflow.pk).update(
            fence_counter=Greatest("fence_counter", writer.written_fence(forgotten)),
            next_first_event=Greatest("next_first_event", event + 1),
            next_first_lumi=Greatest("next_first_lumi", lumi + 1),
        )
        if lumi >= workflow.next_first_lumi:
            lumis_take(request_id=evaluation.request.pk, first=workflow.next_first_lumi, after=lumi + 1)
    workflow.refresh_from_db(fields=["fence_counter", "next_first_event", "next_first_lumi"])


def _record(
    evaluation: Evaluation,
    planned: Plan,
    sizing: Sizing,
    written: writer.WrittenDag,
    files: Mapping[str, tuple[int, int]],
    warnings: Sequence[str],
) -> DAG:
    """``files``: LFN -> row and events; ``warnings``: of production steps."""
    workflow, spec, planned_with = evaluation.request.workflow, planned.dag, stored_sizing(sizing)
    planned_with[LONGEST_WALL] = max((level.longest_seconds for level in planned.walls), default=0.0)
    if mixed := mixed_after(spec):
        planned_with[_MIXED] = {str(task): events for task, events in mixed.items()}
    with transaction.atomic():
        # The many rows first: an operation need not wait for them. What changed meanwhile takes all back when the request is
        # locked.
        round_ = Round.objects.create(workflow=workflow, index=spec.round_index, sizing=planned_with)
        dag = dag_record_ready(
            spec=spec,
            written=written,
            round_id=round_.pk,
            workflow_number=workflow.number,
            files=files,
            priority=evaluation.request.priority,
            decisions=sizing.decisions,
        )
        with evaluation.fenced():  # the workflow is locked after the request, as operations do it
            offsets = _move_offsets(workflow, planned)
            _warn(evaluation.request, warnings)
            evaluation.note(flush=False)
    for name, value in offsets.items():
        setattr(workflow, name, value)
    return DAG.objects.select_related("schedd__pool", "workflow", "round").get(pk=dag.pk)


def _warn(request: Request, warnings: Sequence[str]) -> None:
    """Of each production step what was found out last."""
    if warnings:
        named = {text.partition(" cannot ")[0] for text in warnings}
        kept = [text for text in request.warnings if text.partition(" cannot ")[0] not in named]
        request.warnings = [*kept, *warnings]
        Request.objects.filter(pk=request.pk).update(warnings=request.warnings)


def _move_offsets(workflow: Workflow, planned: Plan) -> dict[str, int]:
    made = planned.generated
    total_nodes = sum(unit.processing_nodes + EXTRA_NODES for unit in planned.dag.units)
    fields = {"total_nodes": workflow.total_nodes + total_nodes}
    if made:
        fields["next_first_event"] = max(g.last_event for g in made) + 1
        fields["next_first_lumi"] = max(g.last_lumi for g in made) + 1
        lumis_take(request_id=workflow.request.pk, first=min(g.first_lumi for g in made), after=fields["next_first_lumi"])
    Workflow.objects.filter(pk=workflow.pk).update(**fields)
    return fields
