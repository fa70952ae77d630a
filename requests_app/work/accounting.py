"""Carrying completed work units from the DAG to the outputs: manifests, file rows and completion, a batch in one transaction.

The one place where dags_app's units and outputs_app's blocks meet (spec 4.6, 4.7; docs/design/model.md, A unit is done).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from django.utils import timezone

from dags_app.counts import jobs_judged
from dags_app.manifest import ManifestProblem
from dags_app.models import DAG, DAGHistory, WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.planning.selection import WantedLumis
from dags_app.services import dag_files
from dags_app.services.claims import claims_of, manifest_compare
from dags_app.services.failures import failures_sweep, failures_sweep_all
from dags_app.services.lost_queue import lost_unit_nodes
from dags_app.services.measurements import measurements_add
from dags_app.services.samples import units_sample
from dags_app.services.submit import SUBMIT_INTENT
from dags_app.services.units import (
    Settled,
    UnitNodes,
    unit_nodes_final,
    unit_nodes_now,
    unit_read,
    unit_unaccounted,
    units_failed_count,
    units_settle,
    units_to_account,
)
from outputs_app.blocks.filling import blocks_check
from outputs_app.services import units_register
from outputs_app.values import MergedFile, UnitOutputs
from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.models import StopIntent
from requests_app.work.block_limits import block_limits, blocks_go_on
from requests_app.work.spec import spec_of
from wms2.errors import LedgerViolation
from wms2.metrics.series import JOBS_ENDED_TOTAL, TRACKING_SECONDS
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.notify import RUN_EFFECTS, notify

log = structlog.get_logger(__name__)
#: So many units are read, compared and accounted together: their cost no longer falls beyond, and their manifests are in memory.
BATCH = 100


def account(evaluation: Evaluation, dag: DAG) -> int:
    """Account the units that DAGMan reports done while it runs. Returns how many.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    failures_sweep(dag)
    nodes = unit_nodes_now(dag)
    if nodes is None:
        log.info("status file not readable now", dag_id=str(dag.pk))
        return 0
    units_failed_count(dag, None)
    return _account(evaluation, dag, nodes)


def account_final(evaluation: Evaluation, dag: DAG, *, completed: bool) -> bool:
    """The sweep after DAGMan has left the queue, before the DAG becomes final; False when nothing says which units are done.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    failures_sweep_all(dag)
    nodes = unit_nodes_final(dag, completed=completed)
    if nodes is None:
        return False
    units_failed_count(dag, nodes.failed)
    _account(evaluation, dag, nodes)
    return True


def account_lost(evaluation: Evaluation, dag: DAG) -> int:
    """The last sweep of a DAG whose queue is lost: what is certainly done counts, nothing else is proved. Returns how many.

    Raises:
        LedgerViolation: a unit processed what it did not claim.
    """
    failures_sweep_all(dag)
    return _account(evaluation, dag, lost_unit_nodes(dag))


def _account(evaluation: Evaluation, dag: DAG, nodes: UnitNodes) -> int:
    """Every unit is looked at, also after one has violated its claim: what the others did well must not be done again.

    Nothing of a request that is to be cleaned: what would be registered now would be under its new epoch.
    """
    if evaluation.request.stop_intent == StopIntent.CLEAN:
        return 0
    count = 0
    violations: list[LedgerViolation] = []
    units = units_to_account(dag=dag, done=nodes.done)
    for first in range(0, len(units), BATCH):
        settled, wrong = _compared(evaluation, dag, units[first : first + BATCH])
        done, refused = _units_account(evaluation, dag, settled) if settled else (0, [])
        count += done
        violations += [*wrong, *refused]
    left = WorkUnit.objects.filter(workflow=evaluation.request.workflow, state=WorkUnitState.DONE_UNACCOUNTED)
    if count and evaluation.request.alert_code and not left.exists():
        alert_over(evaluation, "units_unaccounted")
    if violations:
        raise violations[0]
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


def _compared(evaluation: Evaluation, dag: DAG, units: Sequence[WorkUnit]) -> tuple[list[Settled], list[LedgerViolation]]:
    """The units whose manifests equal their claims, and the violations of others; what is missing is kept with its unit.

    Reads files: no transaction is open.
    """
    settled, violations, asked = [], [], spec_of(evaluation.request.workflow).input
    wanted = WantedLumis(asked) if asked is not None else None
    claims = claims_of([unit.pk for unit in units])
    intents = DAGHistory.objects.filter(dag__directory_id=dag.directory_id, event_type=SUBMIT_INTENT)
    fences = intents.values_list("detail__fence", flat=True)  # read once, and only for a manifest of an earlier submission
    for unit in units:
        try:
            manifest, sha256 = unit_read(unit=unit, dag=dag, fences=fences)
            manifest_compare(unit=unit, claims=claims[unit.pk], manifest=manifest, wanted=wanted)
            settled.append(Settled(unit, manifest, sha256))
        except ManifestProblem as problem:
            if unit_unaccounted(unit=unit, problem=str(problem)):
                alert(evaluation.request, "units_unaccounted", f"{unit.name} is done but unaccounted: {problem}")
        except LedgerViolation as error:
            violations.append(_logged(unit, error))
    return settled, violations


def _logged(unit: WorkUnit, error: LedgerViolation) -> LedgerViolation:
    log.error("work unit violates its claim", unit=unit.name, unit_id=unit.pk, problem=str(error))
    return error


def _units_account(evaluation: Evaluation, dag: DAG, settled: Sequence[Settled]) -> tuple[int, list[LedgerViolation]]:
    """One transaction: the units are DONE, their files are rows, their registration is asked for, blocks that are whole by that
    too. Returns how many there are, and the violations of those whose files cannot be registered, of which nothing is written."""
    request = evaluation.request
    limits = block_limits(request.workflow)
    crash_point("register.claimed")
    with evaluation.fenced():
        outputs = [_outputs(row) for row in settled]
        known = units_register(request_id=request.pk, request_epoch=request.epoch, outputs=outputs, limits=limits)
        refused = known.refused
        done = [row for row in settled if row.unit.pk not in refused]
        if done:
            said = progress_sentence(dag)
            units_settle(dag=dag, settled=done)
            measurements_add(dag=dag, settled=done)
            units_sample(spec=request.workflow.spec, settled=done)
            evaluation.blocks = blocks_check(workflow_id=dag.workflow_id, limits=limits, full=known.full)
            if evaluation.blocks.by(clock.now()):
                blocks_go_on(request, limits)
                evaluation.blocks = None
            elif known.due:
                notify(RUN_EFFECTS)
            if request.waiting_for == said:
                evaluation.note(waiting_for=progress_sentence(dag))
    crash_point("register.recorded")
    JOBS_ENDED_TOTAL.labels("well").inc(sum(jobs_judged(row.unit.jobs, 1) for row in done))
    for row in done:
        # when the unit's own DAGMan ended, its cleanup with it
        inner = dag_files.metrics(Path(dag.submit_dir) / row.unit.name / layout.INNER_DAG, [])
        if inner is not None:
            TRACKING_SECONDS.observe(max(0.0, timezone.now().timestamp() - inner.ended_at))
        log.info(
            "work unit done", request_name=request.request_name, dag_id=str(dag.pk), unit=row.unit.name, site=row.manifest.site,
            events=row.events, files=sum(len(output.files) for output in row.manifest.outputs),
        )  # fmt: skip
    return len(done), [_logged(row.unit, refused[row.unit.pk]) for row in settled if row.unit.pk in refused]


def progress_sentence(dag: DAG) -> str:
    """What a request whose DAG runs waits for."""
    return f"DAGMan job {dag.dagman_cluster_id}: {dag.units_done} of {dag.total_work_units} work units done"


def unaccounted(dag: DAG) -> list[str]:
    """Units of the DAG's round that are done but not accounted."""
    rows = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE_UNACCOUNTED).order_by("index")
    return [f"{unit.name}: {unit.problem}" for unit in rows]


def _outputs(row: Settled) -> UnitOutputs:
    return UnitOutputs(
        unit_id=row.unit.pk,
        unit_name=row.unit.name,
        files=tuple(
            MergedFile(
                dataset=output.dataset,
                lfn=file.lfn,
                rse=file.rse or row.manifest.rse,
                size_bytes=file.size_bytes,
                adler32=file.adler32,
                events=file.events,
                lumis={str(run): tuple((lumi, events) for lumi, events in pairs) for run, pairs in file.lumis.items()},
                parents=tuple(file.parents),
            )
            for output in row.manifest.outputs
            for file in output.files
        ),
    )
