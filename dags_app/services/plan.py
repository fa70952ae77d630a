"""Recording a planned DAG: the DAG row, its units and their claims, in the caller's transaction (ADR 0001)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db import IntegrityError, transaction

from dags_app.models import DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.payload.contract.layout import OUTER_DAG
from dags_app.planning.levels import edge_count
from dags_app.planning.measured import Decision
from dags_app.planning.sizing import Sizes, after, sizes_from_json, sizes_of, sizes_to_json
from dags_app.planning.specs import ClaimKind, ClaimSpec, DagSpec
from dags_app.planning.throttles import Throttles
from dags_app.planning.writer import WrittenDag
from dags_app.services.measurements import decisions_record
from dags_app.states import history
from wms2.errors import LedgerViolation
from wms2.runtime.copying import copy_rows, reserved_ids

_FILE_EVENTS = ClaimKind.FILE_EVENTS  # an enum's member costs a look-up each time it is named
_UNIT = ("id", "index", "name", "jobs", "events", "estimated_output_bytes")
#: What all DAGs of a directory have in common, and the units that are done of it.
_OF_DIRECTORY = (
    "workflow_id", "round_id", "directory_id", "dag_file_path", "submit_dir", "files_sha256", "instance", "total_nodes",
    "total_edges", "node_counts", "total_work_units", "merge_groups", "throttles", "units_done",
)  # fmt: skip
_EMPTY = ("site", "rse", "manifest_sha256", "problem")


class ClaimRow(NamedTuple):
    """The columns of a WorkUnitClaim, in the order in which they are copied."""

    unit: int
    input_file: int | None
    kind: int
    scope: int
    run: int
    first: int
    last: int
    events: int
    live: bool


def dag_record_ready(
    *,
    spec: DagSpec,
    written: WrittenDag,
    round_id: int,
    workflow_number: int,
    files: Mapping[str, tuple[int, int]],
    priority: int,
    decisions: Sequence[Decision] = (),
) -> DAG:
    """The rows of a fresh DAG, READY, with its work claimed.

    Args:
        files: LFN -> (row id, events).

    Raises:
        LedgerViolation: some of this work is claimed already.
    """
    dag_id, workflow_id, units = uuid.UUID(spec.dag_id), uuid.UUID(spec.workflow_id), spec.units
    processing, many = sum(unit.processing_nodes for unit in units), len(units)
    sizes = sizes_of(spec.workflow, spec.profile)
    node_counts = {"Processing": processing, "Merge": many, "Cleanup": many, "Landing": many}
    dag = DAG.objects.create(
        id=dag_id,
        workflow_id=workflow_id,
        round_id=round_id,
        kind=DAGKind.FRESH,
        directory_id=dag_id,
        dag_file_path=str(written.directory / OUTER_DAG),
        submit_dir=str(written.directory),
        files_sha256=written.files_sha256,
        instance=spec.instance,
        job_priority=priority,
        sizes=sizes_to_json(sizes),
        total_nodes=sum(node_counts.values()),
        total_edges=sum(edge_count(unit) for unit in units),
        node_counts=node_counts,
        total_work_units=many,
        merge_groups=min(spec.limits.max_merge_groups, many),
        throttles=Throttles(spec.limits.max_merge_groups, spec.limits.max_processing).as_dict(),
        status=DAGStatus.READY,
    )
    keys = reserved_ids(WorkUnit, many)
    same = (workflow_id, round_id, dag_id, WorkUnitState.PLANNED.value, *[""] * len(_EMPTY))
    copy_rows(
        WorkUnit,
        (*_UNIT, "workflow", "round", "dag", "state", *_EMPTY),
        (
            (key, unit.index, unit.name, unit.processing_nodes, unit.events, sum(unit.estimated_output_bytes.values()), *same)
            for key, unit in zip(keys, units, strict=True)
        ),
    )
    claims = 0

    def counted() -> Iterator[ClaimRow]:
        nonlocal claims
        for key, unit in zip(keys, units, strict=True):
            for claim in unit.claims:
                for row in claim_rows(key, claim, workflow_number, files):
                    claims += 1
                    yield row

    claims_record(counted())
    decisions_record(dag=dag, decisions=decisions, profile_version=sizes.profile.version)
    history(dag, "planned", to_status=DAGStatus.READY, detail={"work_units": many, "claims": claims, "sizes": dag.sizes})
    return dag


def dag_record_rescue(
    *, failed: DAG, kind: DAGKind, rescue_file: str, priority: int, sizes: Sizes, decisions: Sequence[Decision] = ()
) -> DAG:
    """The row of a rescue: same directory, same units, linked to the DAG it rescues; its submission brings ``sizes``."""
    sizes = after(sizes_from_json(failed.sizes), sizes)
    dag = DAG.objects.create(
        id=rescue_id(failed),
        kind=kind,
        rescue_dag_path=rescue_file,
        parent_dag=failed,
        job_priority=priority,
        sizes=sizes_to_json(sizes),
        status=DAGStatus.READY,
        **{name: getattr(failed, name) for name in _OF_DIRECTORY},
    )
    decisions_record(dag=dag, decisions=decisions, profile_version=sizes.profile.version)
    detail = {"parent": str(failed.pk), "rescue": rescue_file, "kind": kind, "sizes": dag.sizes}
    history(dag, "rescue_prepared", to_status=DAGStatus.READY, detail=detail)
    return dag


def rescue_id(failed: DAG) -> uuid.UUID:
    """Of the next DAG in its directory; with a database restored from before it, it is the same again, and its job is found."""
    return uuid.uuid5(failed.directory_id, f"rescue {DAG.objects.filter(directory_id=failed.directory_id).count()}")


def claims_record(rows: Iterable[ClaimRow]) -> None:
    """Live claims, in the caller's transaction.

    Raises:
        LedgerViolation: some of this work is claimed already, by whom.
    """
    try:
        with transaction.atomic():
            copy_rows(WorkUnitClaim, ClaimRow._fields, rows)
    except IntegrityError as error:
        if "live_claims_disjoint" not in str(error):
            raise
        whose = str(error).splitlines()[0].removeprefix("live_claims_disjoint: ")
        raise LedgerViolation(f"work that is claimed already was planned again: {whose}") from error


def claim_rows(unit: int, claim: ClaimSpec, number: int, files: Mapping[str, tuple[int, int]]) -> tuple[ClaimRow, ...]:
    """One claim of the unit with this key, ``number`` being its workflow's; generated events claim their lumis beside them."""
    kind, first, last, lfn, run, first_lumi, last_lumi = claim
    if kind is _FILE_EVENTS:
        key, held = files[lfn]
        # a file without events claims 0..0
        return (ClaimRow(unit, key, WorkUnitClaim.KIND_FILE_EVENTS, key, 0, first, last, min(last - first + 1, held), True),)
    if kind is ClaimKind.RUN_LUMIS:
        return (ClaimRow(unit, None, WorkUnitClaim.KIND_RUN_LUMIS, number, run, first, last, 0, True),)
    return (
        ClaimRow(unit, None, WorkUnitClaim.KIND_GENERATED, number, run, first, last, last - first + 1, True),
        ClaimRow(unit, None, WorkUnitClaim.KIND_GENERATED_LUMIS, number, run, first_lumi, last_lumi, 0, True),
    )
