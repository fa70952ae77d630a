"""Recording a planned DAG: the DAG row, its units and their claims, in the caller's transaction (ADR 0013)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import NumericRange

from dags_app.models import DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitClaim
from dags_app.planning.levels import edge_count
from dags_app.planning.specs import ClaimKind, ClaimSpec, DagSpec
from dags_app.planning.writer import WrittenDag
from dags_app.states import history
from wms2.errors import LedgerViolation


def dag_record_ready(
    *,
    spec: DagSpec,
    written: WrittenDag,
    round_id: int,
    workflow_number: int,
    files: Mapping[str, tuple[int, int]],
    priority: int,
) -> tuple[DAG, list[WorkUnit]]:
    """The rows of a fresh DAG, READY, with its work claimed. ``files``: LFN -> (row id, events).

    Raises:
        LedgerViolation: some of this work is claimed already.
    """
    dag_id, workflow_id, units = uuid.UUID(spec.dag_id), uuid.UUID(spec.workflow_id), spec.units
    processing, many = sum(unit.processing_nodes for unit in units), len(units)
    node_counts = {"Processing": processing, "Merge": many, "Cleanup": many, "Landing": many}
    dag = DAG.objects.create(
        id=dag_id,
        workflow_id=workflow_id,
        round_id=round_id,
        kind=DAGKind.FRESH,
        directory_id=dag_id,
        dag_file_path=str(written.dag_file),
        submit_dir=str(written.directory),
        files_sha256=written.files_sha256,
        instance=spec.instance,
        job_priority=priority,
        total_nodes=sum(node_counts.values()),
        total_edges=sum(edge_count(unit) for unit in units),
        node_counts=node_counts,
        total_work_units=many,
        merge_groups=min(spec.limits.max_merge_groups, many),
        status=DAGStatus.READY,
    )
    rows = WorkUnit.objects.bulk_create(
        [
            WorkUnit(
                workflow_id=workflow_id,
                round_id=round_id,
                dag=dag,
                index=unit.index,
                name=unit.name,
                jobs=unit.processing_nodes,
                events=unit.events,
                estimated_output_bytes=sum(unit.estimated_output_bytes.values()),
            )
            for unit in units
        ],
        batch_size=2000,
    )
    claims = [
        claim_row
        for row, unit in zip(rows, units, strict=True)
        for claim in unit.claims
        for claim_row in claim_rows(row, claim, workflow_number, files)
    ]
    try:
        with transaction.atomic():
            WorkUnitClaim.objects.bulk_create(claims, batch_size=5000)
    except IntegrityError as error:
        if "live_claims_disjoint" not in str(error):
            raise
        raise LedgerViolation(f"work that is claimed already was planned again: {str(error).splitlines()[-1]}") from error
    history(dag, "planned", to_status=DAGStatus.READY, detail={"work_units": len(units), "claims": len(claims)})
    return dag, rows


def dag_record_rescue(*, failed: DAG, kind: DAGKind, rescue_file: str, priority: int) -> DAG:
    """The row of a rescue: same directory, same units, linked to the DAG it rescues."""
    dag = DAG.objects.create(
        workflow_id=failed.workflow_id,
        round_id=failed.round_id,
        kind=kind,
        directory_id=failed.directory_id,
        dag_file_path=failed.dag_file_path,
        submit_dir=failed.submit_dir,
        files_sha256=failed.files_sha256,
        rescue_dag_path=rescue_file,
        instance=failed.instance,
        parent_dag=failed,
        job_priority=priority,
        total_nodes=failed.total_nodes,
        total_edges=failed.total_edges,
        node_counts=failed.node_counts,
        total_work_units=failed.total_work_units,
        merge_groups=failed.merge_groups,
        units_done=failed.units_done,
        status=DAGStatus.READY,
    )
    history(
        dag, "rescue_prepared", to_status=DAGStatus.READY, detail={"parent": str(failed.pk), "rescue": rescue_file, "kind": kind}
    )
    return dag


def claim_rows(
    unit: WorkUnit, claim: ClaimSpec, workflow_number: int, files: Mapping[str, tuple[int, int]]
) -> list[WorkUnitClaim]:
    """One claim as ranges (see WorkUnitClaim); generated events claim their lumis beside them."""
    if claim.kind is ClaimKind.FILE_EVENTS:
        file_id, file_events = files[claim.lfn]
        row = _row(unit, WorkUnitClaim.KIND_FILE_EVENTS, file_id, 0, claim.first, claim.last, input_file_id=file_id)
        row.events = min(row.events, file_events)  # a file without events claims 0..0
        return [row]
    if claim.kind is ClaimKind.RUN_LUMIS:
        return [_row(unit, WorkUnitClaim.KIND_RUN_LUMIS, workflow_number, claim.run, claim.first, claim.last)]
    return [
        _row(unit, WorkUnitClaim.KIND_GENERATED, workflow_number, claim.run, claim.first, claim.last),
        _row(unit, WorkUnitClaim.KIND_GENERATED_LUMIS, workflow_number, claim.run, claim.first_lumi, claim.last_lumi),
    ]


def _row(unit: WorkUnit, kind: int, scope: int, run: int, first: int, last: int, **extra: Any) -> WorkUnitClaim:
    counts_events = kind in (WorkUnitClaim.KIND_GENERATED, WorkUnitClaim.KIND_FILE_EVENTS)
    events = last - first + 1 if counts_events else 0
    return WorkUnitClaim(
        unit=unit,
        kind=_point(kind),
        scope=_point(scope),
        run=_point(run),
        span=NumericRange(first, last, "[]"),
        events=events,
        **extra,
    )


def _point(value: int) -> Any:
    return NumericRange(value, value, "[]")
