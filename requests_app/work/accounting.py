"""Carrying completed work units from the DAG to the outputs: manifest, file rows and completion in one transaction.

The one place where dags_app's units and outputs_app's blocks meet (spec 4.6, 4.7; docs/design/model.md, A unit is done).
"""

from __future__ import annotations

import structlog
from django.utils import timezone

from dags_app.manifest import Manifest, ManifestProblem
from dags_app.models import DAG, WorkUnit, WorkUnitState
from dags_app.planning.wanted import WantedLumis
from dags_app.services.failures import failures_sweep
from dags_app.services.lost_queue import lost_unit_nodes
from dags_app.services.units import (
    UnitNodes,
    unit_ended_at,
    unit_nodes,
    unit_nodes_final,
    unit_read,
    unit_settle,
    unit_unaccounted,
    units_to_account,
)
from outputs_app.blocks import blocks_advance, blocks_tend
from outputs_app.services import unit_register
from outputs_app.values import MergedFile, UnitOutputs
from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.models import Event
from requests_app.work.block_limits import block_limits
from requests_app.work.spec import spec_of
from wms2.crash import crash_point
from wms2.errors import LedgerViolation
from wms2.metrics import TRACKING_SECONDS
from wms2.nudge import RUN_EFFECTS, nudge

log = structlog.get_logger(__name__)


def account(evaluation: Evaluation, dag: DAG) -> int:
    """Account the units that DAGMan reports done while it runs; reads files only when its counts moved. Returns how many.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    failures_sweep(dag)
    done = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).count()
    if int(dag.observed.get("nodes_done") or 0) <= done:
        return 0
    nodes = unit_nodes(dag)
    if nodes is None:
        log.info("status file not readable now", dag_id=str(dag.pk))
        return 0
    return _account(evaluation, dag, nodes)


def account_final(evaluation: Evaluation, dag: DAG, *, completed: bool) -> bool:
    """The sweep after DAGMan has left the queue, before the DAG becomes final; False when nothing tells which units are done.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    failures_sweep(dag)
    nodes = unit_nodes_final(dag, completed=completed)
    if nodes is None:
        return False
    _account(evaluation, dag, nodes)
    return True


def account_lost(evaluation: Evaluation, dag: DAG) -> int:
    """The last sweep of a DAG whose queue is lost: what is certainly done counts, nothing else is proved. Returns how many.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    failures_sweep(dag)
    return _account(evaluation, dag, lost_unit_nodes(dag))


def _account(evaluation: Evaluation, dag: DAG, nodes: UnitNodes) -> int:
    """Every unit is looked at, also after one has violated its claim: what the others did well must not be done again."""
    count = 0
    violation: LedgerViolation | None = None
    wanted = _wanted(evaluation)
    for unit in units_to_account(dag=dag, done=nodes.done):
        try:
            manifest, sha256 = unit_read(unit=unit, dag=dag)
            unit_account(evaluation, dag, unit, manifest, sha256, wanted)
            count += 1
        except ManifestProblem as problem:
            unit_unaccounted(unit=unit, problem=str(problem))
            alert(evaluation.request, "units_unaccounted", f"{unit.name} is done but unaccounted: {problem}")
        except LedgerViolation as error:
            log.error("work unit violates its claim", unit=unit.name, unit_id=unit.pk, problem=str(error))
            violation = violation or error
    if count:
        with evaluation.fenced():
            blocks_tend(workflow_id=dag.workflow_id, limits=block_limits(evaluation.request.workflow))
            blocks_advance(workflow_id=dag.workflow_id, request_id=evaluation.request.pk, request_epoch=evaluation.request.epoch)
            nudge(RUN_EFFECTS)
    if violation is not None:
        raise violation
    return count


def account_again(evaluation: Evaluation) -> None:
    """Look once more at the manifests of units that were done but unaccounted when their DAG ended.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    units = WorkUnit.objects.filter(workflow=evaluation.request.workflow, state=WorkUnitState.DONE_UNACCOUNTED)
    for round_id in units.order_by("round_id").values_list("round_id", flat=True).distinct():
        dag = DAG.objects.filter(round_id=round_id, submitted_at__isnull=False).order_by("-fence").first()
        if dag is not None:
            names = units.filter(round_id=round_id).values_list("name", flat=True)
            _account(evaluation, dag, UnitNodes(done=tuple(names), failed=()))


def _wanted(evaluation: Evaluation) -> WantedLumis | None:
    wanted = spec_of(evaluation.request.workflow).input
    return WantedLumis(wanted) if wanted is not None else None


def unit_account(
    evaluation: Evaluation, dag: DAG, unit: WorkUnit, manifest: Manifest, sha256: str, wanted: WantedLumis | None
) -> None:
    """One transaction: the unit is DONE, its files are rows, their registration is asked for."""
    crash_point("register.claimed")
    with evaluation.fenced():
        events = unit_settle(unit=unit, dag=dag, manifest=manifest, sha256=sha256, wanted=wanted)
        files = unit_register(
            request_id=evaluation.request.pk, request_epoch=evaluation.request.epoch, outputs=_outputs(unit, manifest)
        )
        Event.objects.create(
            request=evaluation.request,
            kind="work_unit.done",
            data={"unit": unit.name, "site": manifest.site, "events": events, "files": files},
        )
        nudge(RUN_EFFECTS)
    crash_point("register.recorded")
    ended_at = unit_ended_at(unit=unit, dag=dag)
    if ended_at is not None:
        TRACKING_SECONDS.observe(max(0.0, (timezone.now() - ended_at).total_seconds()))
    log.info(
        "work unit done",
        request_name=evaluation.request.request_name,
        dag_id=str(dag.pk),
        unit=unit.name,
        site=manifest.site,
        events=events,
        files=files,
    )


def unaccounted(dag: DAG) -> list[str]:
    """Units of the DAG's round that are done but not accounted."""
    rows = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE_UNACCOUNTED).order_by("index")
    return [f"{unit.name}: {unit.problem}" for unit in rows]


def _outputs(unit: WorkUnit, manifest: Manifest) -> UnitOutputs:
    return UnitOutputs(
        unit_id=unit.pk,
        unit_name=unit.name,
        rse=manifest.rse,
        files=tuple(
            MergedFile(
                dataset=output.dataset,
                lfn=file.lfn,
                size_bytes=file.size_bytes,
                adler32=file.adler32,
                events=file.events,
                lumis={str(run): tuple((lumi, events) for lumi, events in pairs) for run, pairs in file.lumis.items()},
                parents=tuple(file.parents),
            )
            for output in manifest.outputs
            for file in output.files
        ),
    )
