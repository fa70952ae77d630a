"""Work units: which ones DAGMan says are done, and whether their manifests equal their claims (``model.md`` section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.db.models import Case, F, TextField, Value, When
from django.db.models.functions import Concat
from django.utils import timezone

from dags_app import dagman
from dags_app.manifest import Manifest, ManifestProblem, read_manifest
from dags_app.models import DAG, DAGHistory, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning import lumis
from dags_app.planning.specs import LumiRanges
from dags_app.planning.wanted import WantedLumis
from dags_app.services import leavings
from dags_app.services.submit import SUBMIT_INTENT
from wms2.errors import LedgerViolation, StaleState

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnitNodes:
    """The outer DAG's nodes that ended, as the status file names them; None when the file cannot be read now."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


def unit_nodes(dag: DAG) -> UnitNodes | None:
    """Read the outer status file. A torn, damaged or missing file says nothing."""
    status = leavings.status(Path(dag.dag_file_path), [])
    if status is None:
        return None
    return UnitNodes(
        done=tuple(node.name for node in status.nodes if node.state is dagman.NodeState.DONE),
        failed=tuple(node.name for node in status.nodes if node.state is dagman.NodeState.ERROR),
    )


def unit_nodes_final(dag: DAG, *, completed: bool) -> UnitNodes | None:
    """The same once the DAG has ended, also when its status file is gone or old: a completed DAG has everything done, and the
    newest rescue file lists what is done. None when nothing can tell; then nothing may be concluded."""
    if completed:
        return UnitNodes(done=tuple(WorkUnit.objects.filter(round_id=dag.round_id).values_list("name", flat=True)), failed=())
    nodes = unit_nodes(dag)
    rescue = leavings.rescue(Path(dag.dag_file_path), [])
    if rescue is None:
        return nodes
    failed = nodes.failed if nodes is not None else tuple(sorted(rescue.failed))
    return UnitNodes(done=tuple(sorted({*rescue.done, *(nodes.done if nodes is not None else ())})), failed=failed)


def units_to_account(*, dag: DAG, done: Sequence[str]) -> list[WorkUnit]:
    """Units that DAGMan says are done and that are not accounted yet, oldest first."""
    return list(
        WorkUnit.objects.filter(round_id=dag.round_id, name__in=done)
        .exclude(state__in=(WorkUnitState.DONE, WorkUnitState.ABANDONED))
        .order_by("index")
    )


def unit_read(*, unit: WorkUnit, dag: DAG) -> tuple[Manifest, str]:
    """The unit's manifest, checked against what was asked.

    Raises:
        ManifestProblem: missing, torn, of another request or unit, of an unknown or newer fence.
    """
    manifest, sha256 = read_manifest(Path(dag.submit_dir) / unit.name / "merge_output.json")
    expected = (str(dag.workflow_id), str(dag.directory_id), unit.name)
    if (manifest.workflow_id, manifest.dag_id, manifest.unit) != expected:
        raise ManifestProblem(f"{unit.name}: the manifest belongs to {manifest.workflow_id} {manifest.dag_id} {manifest.unit}")
    intents = DAGHistory.objects.filter(
        dag__directory_id=dag.directory_id, event_type=SUBMIT_INTENT, detail__fence=manifest.fence
    )
    if not intents.exists():
        raise ManifestProblem(f"{unit.name}: the manifest carries fence {manifest.fence}, which no submission of this DAG had")
    return manifest, sha256


def unit_settle(*, unit: WorkUnit, dag: DAG, manifest: Manifest, sha256: str, wanted: WantedLumis | None = None) -> int:
    """PLANNED or unaccounted -> DONE when the manifest equals the claim; in the caller's transaction. Returns its events.

    Args:
        wanted: which lumis of its input the request wants; None without input.

    Raises:
        LedgerViolation: the unit processed work that it did not claim, or processed something twice.
        ManifestProblem: claimed work is missing.
    """
    _compare(unit, manifest, wanted)
    rows = WorkUnit.objects.filter(pk=unit.pk, state__in=(WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED)).update(
        state=WorkUnitState.DONE,
        site=manifest.site,
        rse=manifest.rse,
        fence=manifest.fence,
        manifest_sha256=sha256,
        problem="",
        problem_since=None,
        done_at=timezone.now(),
    )
    if rows != 1:
        raise StaleState(f"work unit {unit.name} is no longer open")
    DAG.objects.filter(pk=dag.pk).update(units_done=F("units_done") + 1)
    return sum(job.processed.events for job in manifest.claimants)


def unit_unaccounted(*, unit: WorkUnit, problem: str) -> None:
    """DAGMan says done, the manifest does not: kept so, retried each cycle, alerted on."""
    WorkUnit.objects.filter(pk=unit.pk).exclude(state=WorkUnitState.DONE).update(
        state=WorkUnitState.DONE_UNACCOUNTED, problem=problem, problem_since=unit.problem_since or timezone.now()
    )
    log.error("work unit done but unaccounted", unit=unit.name, unit_id=unit.pk, problem=problem)


def units_fail(*, units: Sequence[WorkUnit], problem: str, state: WorkUnitState = WorkUnitState.FAILED) -> None:
    """Units that will not be done in this round give their claims back; a cause that is known stays beside ``problem``."""
    ids = [u.pk for u in units]
    both = Concat("problem", Value(f"; {problem}"), output_field=TextField())
    told = Case(When(problem="", then=Value(problem)), default=both, output_field=TextField())
    WorkUnit.objects.filter(pk__in=ids).update(state=state, problem=told, problem_since=timezone.now())
    WorkUnitClaim.objects.filter(unit_id__in=ids).update(live=False)


def _compare(unit: WorkUnit, manifest: Manifest, wanted: WantedLumis | None) -> None:
    claims = list(unit.claims.filter(live=True).select_related("input_file"))
    kinds = {claim.kind.lower for claim in claims}
    if kinds <= {WorkUnitClaim.KIND_GENERATED, WorkUnitClaim.KIND_GENERATED_LUMIS}:
        _compare_generated(unit, claims, manifest)
    elif kinds == {WorkUnitClaim.KIND_FILE_EVENTS}:
        _compare_files(unit, claims, manifest, wanted)
    else:
        _equal(unit, "lumis", _claimed_lumis(claims, WorkUnitClaim.KIND_RUN_LUMIS), _processed_lumis(manifest))


def _compare_generated(unit: WorkUnit, claims: list[WorkUnitClaim], manifest: Manifest) -> None:
    wanted = sum(c.events for c in claims)
    got = sum(job.processed.events for job in manifest.claimants)
    if got > wanted:
        raise LedgerViolation(f"{unit.name} generated {got} events, {wanted} were claimed")
    if got < wanted:
        raise ManifestProblem(f"{unit.name} generated {got} of {wanted} claimed events")
    _equal(unit, "lumis", _claimed_lumis(claims, WorkUnitClaim.KIND_GENERATED_LUMIS), _processed_lumis(manifest))


def _compare_files(unit: WorkUnit, claims: list[WorkUnitClaim], manifest: Manifest, selection: WantedLumis | None) -> None:
    """Files of which everything is wanted must be read whole; of those that a mask cuts exactly the wanted lumis."""
    wanted: dict[str, int] = {}
    chosen: dict[str, LumiRanges] = {}
    cut: set[str] = set()
    for claim in claims:
        file = claim.input_file
        if file is None:
            raise LedgerViolation(f"{unit.name}: a claim on file events has no file")
        wanted[file.lfn] = wanted.get(file.lfn, 0) + claim.events
        if selection is not None and not selection.everything:
            held = lumis.from_json(file.lumis)
            chosen[file.lfn] = selection.among(held)
            if chosen[file.lfn] != held:
                cut.add(file.lfn)
    got: dict[str, int] = {}
    for job in manifest.claimants:
        for read in job.processed.files:
            got[read.lfn] = got.get(read.lfn, 0) + read.events
    strangers = got.keys() - wanted.keys()
    too_much = [lfn for lfn in got.keys() & wanted.keys() if got[lfn] > wanted[lfn]]
    if strangers or too_much:
        raise LedgerViolation(f"{unit.name} read what it did not claim: {sorted(strangers)[:3] + too_much[:3]}")
    if cut:
        _equal(unit, "lumis", lumis.union(*chosen.values()), _processed_lumis(manifest))
    short = [lfn for lfn, events in wanted.items() if got.get(lfn, -1) < (0 if lfn in cut else events)]
    if short:
        raise ManifestProblem(f"{unit.name}: {len(short)} claimed files not read whole, e.g. {sorted(short)[0]}")


def _equal(unit: WorkUnit, what: str, wanted: LumiRanges, got: LumiRanges) -> None:
    extra, missing = lumis.subtract(got, wanted), lumis.subtract(wanted, got)
    if extra:
        raise LedgerViolation(f"{unit.name} processed {what} that it did not claim: {dict(extra)}")
    if missing:
        raise ManifestProblem(f"{unit.name}: claimed {what} are missing: {dict(missing)}")


def _claimed_lumis(claims: list[WorkUnitClaim], kind: int) -> LumiRanges:
    return lumis.from_intervals(
        (claim.run.lower, claim.span.lower, claim.span.upper - 1) for claim in claims if claim.kind.lower == kind
    )


def _processed_lumis(manifest: Manifest) -> LumiRanges:
    return lumis.from_intervals(
        (run, a, b) for job in manifest.claimants for run, spans in job.processed.lumis.items() for a, b in spans
    )
