"""Work units: which DAGMan says are done, and whether the manifests equal the claims (docs/design/model.md, A unit is done)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog
from django.contrib.postgres.fields import ArrayField
from django.db.models import BooleanField, Case, Func, TextField, Value, When
from django.db.models.functions import Concat
from django.utils import timezone

from dags_app.manifest import Manifest, ManifestProblem, read_manifest
from dags_app.models import DAG, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.services import dag_files
from wms2.errors import StaleState
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
_OPEN = [WorkUnitState.PLANNED.value, WorkUnitState.DONE_UNACCOUNTED.value]


class UnitNodes(NamedTuple):
    """The outer DAG's nodes that ended."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


def unit_nodes_now(dag: DAG) -> UnitNodes | None:
    """While it runs: those of the job-state log, which has each within DAGMan's scan; where the job's ad counts more than are
    accounted, the status file's too. None when that is needed and cannot be read."""
    logged = dag_files.logged_done(dag)
    counted_done = int(dag.observed.get("nodes_done") or 0)
    done = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE)
    if counted_done <= len(logged) or counted_done <= done.count():
        return UnitNodes(done=tuple(sorted(logged)), failed=())
    return unit_nodes(dag)


def unit_nodes(dag: DAG) -> UnitNodes | None:
    """Read the outer status file, and what DAGMan has seen since it wrote that. A torn, damaged or missing file says nothing."""
    status = dag_files.status(Path(dag.dag_file_path), [])
    if status is None:
        return None
    return UnitNodes(
        done=tuple(sorted({*status.done_nodes(), *dag_files.logged_done(dag)})),
        failed=status.failed_nodes(),
    )


def unit_nodes_final(dag: DAG, *, completed: bool) -> UnitNodes | None:
    """The same once the DAG has ended, also when its status file is gone or old: a completed DAG has everything done, and the
    newest rescue file lists what is done. None when that is not known; then nothing may be concluded."""
    if completed:
        return UnitNodes(done=tuple(WorkUnit.objects.filter(round_id=dag.round_id).values_list("name", flat=True)), failed=())
    nodes = unit_nodes(dag)
    rescue = dag_files.rescue(Path(dag.dag_file_path), [])
    if rescue is None:
        return nodes
    known = nodes if nodes is not None else UnitNodes(done=(), failed=())
    done = {*rescue.done, *known.done}
    return UnitNodes(done=tuple(sorted(done)), failed=tuple(sorted({*rescue.failed, *known.failed} - done)))


def units_failed_count(dag: DAG, failed: Sequence[str] | None) -> None:
    """Keep how the nodes of failed units had ended, by the metrics that the units' DAGMans left, where others are failed now.

    Args:
        failed: the units, if they are known; otherwise the status file is read when DAGMan counts others than are kept.
    """
    known = dag.failed_units.get("units", 0)
    if failed is None:
        if int(dag.observed.get("nodes_failed") or 0) == known:
            return
        nodes = unit_nodes(dag)
        failed = nodes.failed if nodes is not None else ()
    if len(failed) == known:
        return
    inner = [dag_files.metrics(Path(dag.submit_dir) / name / layout.INNER_DAG, []) for name in failed]
    ended = [found for found in inner if found is not None]
    dag.failed_units = {
        "units": len(failed),
        "done": sum(each.nodes_done for each in ended),
        "failed": sum(each.nodes_failed for each in ended),
    }
    DAG.objects.filter(pk=dag.pk).update(failed_units=dag.failed_units)


def units_to_account(*, dag: DAG, done: Sequence[str]) -> list[WorkUnit]:
    """Units that DAGMan says are done and that are not accounted yet, oldest first."""
    names = Value(list(done), ArrayField(TextField()))  # one value, however many they are
    among = Func("name", names, arg_joiner=" = ANY(", template="(%(expressions)s))", output_field=BooleanField())
    rows = WorkUnit.objects.filter(among, round_id=dag.round_id)
    return list(rows.exclude(state__in=(WorkUnitState.DONE, WorkUnitState.ABANDONED)).order_by("index")) if done else []


def unit_read(*, unit: WorkUnit, dag: DAG, fences: Iterable[int]) -> tuple[Manifest, str]:
    """The unit's manifest, checked against what was asked.

    Args:
        fences: of all submissions of the DAG's directory, for manifests of an earlier one.

    Raises:
        ManifestProblem: missing, torn, of another request or unit, of an unknown or newer fence.
    """
    manifest, sha256 = read_manifest(Path(dag.submit_dir) / unit.name / layout.MANIFEST_FILE)
    expected = (str(dag.workflow_id), str(dag.directory_id), unit.name)
    if (manifest.workflow_id, manifest.dag_id, manifest.unit) != expected:
        raise ManifestProblem(f"{unit.name}: the manifest belongs to {manifest.workflow_id} {manifest.dag_id} {manifest.unit}")
    if manifest.fence != dag.fence and manifest.fence not in fences:
        raise ManifestProblem(f"{unit.name}: the manifest carries fence {manifest.fence}, which no submission of this DAG had")
    return manifest, sha256


class Settled(NamedTuple):
    """A unit whose manifest equals its claims."""

    unit: WorkUnit
    manifest: Manifest
    sha256: str

    @property
    def events(self) -> int:
        """What its jobs processed."""
        return sum(job.processed.events for job in self.manifest.claimants)


def units_settle(*, dag: DAG, settled: Sequence[Settled]) -> None:
    """PLANNED or unaccounted -> DONE, all or none, in the caller's transaction.

    Raises:
        StaleState: one of them is no longer open.
    """
    # one statement for all: an UPDATE of its own for each would cost as much as all else of its account
    columns = [(row.unit.pk, row.manifest.site, row.manifest.rse, row.manifest.fence, row.sha256) for row in settled]
    rows = sql_rows(
        "WITH done AS ("
        "UPDATE work_units u SET state = %s, site = v.site, rse = v.rse, fence = v.fence, manifest_sha256 = v.sha256,"
        " problem = '', problem_since = NULL, done_at = %s"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::text[]) AS v (id, site, rse, fence, sha256)"
        " WHERE u.id = v.id AND u.state = ANY(%s) RETURNING u.id),"
        " counted AS (UPDATE dags SET units_done = units_done + %s WHERE id = %s) SELECT id FROM done",
        [WorkUnitState.DONE, timezone.now(), *map(list, zip(*columns, strict=True)), _OPEN, len(settled), dag.pk],
    )
    changed = {pk for (pk,) in rows}
    gone = [row.unit.name for row in settled if row.unit.pk not in changed]
    if gone:
        raise StaleState(f"work units are no longer open: {gone[:3]}")
    dag.units_done += len(settled)


def unit_unaccounted(*, unit: WorkUnit, problem: str) -> bool:
    """DAGMan says done, the manifest does not: kept so, retried each cycle, alerted on. False: it was given up meanwhile."""
    kept = WorkUnit.objects.filter(pk=unit.pk, state__in=_OPEN).update(
        state=WorkUnitState.DONE_UNACCOUNTED, problem=problem, problem_since=unit.problem_since or timezone.now()
    )
    log.error("work unit done but unaccounted", unit=unit.name, unit_id=unit.pk, problem=problem)
    return bool(kept)


def units_fail(*, units: Sequence[WorkUnit], problem: str, state: WorkUnitState = WorkUnitState.FAILED) -> None:
    """Units that will not be done in this round give their claims back; a cause that is known stays beside ``problem``."""
    ids = [u.pk for u in units]
    both = Concat("problem", Value(f"; {problem}"), output_field=TextField())
    problems = Case(When(problem="", then=Value(problem)), default=both, output_field=TextField())
    WorkUnit.objects.filter(pk__in=ids).update(state=state, problem=problems, problem_since=timezone.now())
    WorkUnitClaim.objects.filter(unit_id__in=ids).update(live=False)
