"""A unit is done when its manifest equals its claim: files by events, masked files by their lumis, lumis by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from dags_app.manifest import Manifest, ManifestJob, ManifestProblem, Processed, ProcessedFile
from dags_app.models import WorkUnit, WorkUnitState
from dags_app.planning.selection import WantedLumis
from dags_app.planning.specs import ClaimKind, ClaimSpec, InputSpec, LumiRanges
from dags_app.services.claims import claims_of, manifest_compare
from dags_app.services.plan import claim_rows, claims_record
from dags_app.services.units import Settled, units_settle
from requests_app.models import InputFile
from tests.support.rows import dag_row, input_spec, unit_row, workflow_row
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db
EVERYTHING = InputSpec(dataset="/Input/Era-v1/RAW")
A, B = "/store/data/a.root", "/store/data/b.root"
FILES: dict[str, tuple[int, LumiRanges]] = {A: (100, {1: ((1, 10),)}), B: (100, {1: ((11, 15),), 2: ((1, 5),)})}


def unit_with(*claims: ClaimSpec) -> WorkUnit:
    workflow = workflow_row(spec=input_spec())
    ids = {}
    for lfn, (events, lumis) in FILES.items():
        stored = {str(run): [list(span) for span in spans] for run, spans in lumis.items()}
        row = InputFile.objects.create(workflow=workflow, lfn=lfn, block_name="/x#1", size_bytes=1, events=events, lumis=stored)
        ids[lfn] = (row.pk, events)
    unit = unit_row(dag_row(workflow))
    claims_record(row for claim in claims for row in claim_rows(unit.pk, claim, workflow.number, ids))
    return unit


def whole(lfn: str) -> ClaimSpec:
    return ClaimSpec(ClaimKind.FILE_EVENTS, 0, FILES[lfn][0] - 1, lfn)


def manifest(files: dict[str, int], lumis: dict[str, Any]) -> Manifest:
    return manifest_of([{"lfn": lfn, "events": events} for lfn, events in files.items()], lumis)


def manifest_of(files: list[dict[str, Any]], lumis: dict[str, Any], merged: list[dict[str, Any]] | None = None) -> Manifest:
    """``merged``: the pieces of each merged file of one output; None: a manifest of before they were told."""
    processed = {"events": sum(file["events"] for file in files), "lumis": lumis, "files": files}
    plain = {"size_bytes": 1, "adler32": "00000001", "events": 0, "lumis": {}}
    merged_files = [{"lfn": f"/store/mc/{n}.root", **plain, "pieces": pieces} for n, pieces in enumerate(merged or ())]
    return Manifest.model_validate(
        {
            "schema": "wms2.manifest/1" if merged is None else "wms2.manifest/1.1",
            "request_name": "r",
            "workflow_id": "w",
            "dag_id": "d",
            "unit": "mg_000000",
            "fence": 1,
            "site": "T2_CH_CERN",
            "rse": "T2_CH_CERN",
            "jobs": [{"node": "proc_000000", "processed": processed}],
            "outputs": [{"dataset": "/P/E-v1/AOD", "module": "AODoutput", "step": "Reco", "files": merged_files}]
            if merged
            else [],
        }
    )


def settle(unit: WorkUnit, read: Manifest, selection: InputSpec = EVERYTHING) -> int:
    manifest_compare(unit=unit, claims=claims_of([unit.pk])[unit.pk], manifest=read, wanted=WantedLumis(selection))
    settled = Settled(unit, read, "x" * 64)
    units_settle(dag=unit.dag, settled=[settled])
    return settled.events


def test_whole_files_are_settled_by_their_events() -> None:
    unit = unit_with(whole(A), whole(B))
    assert settle(unit, manifest({A: 100, B: 100}, {"1": [[1, 15]], "2": [[1, 5]]})) == 200
    unit.refresh_from_db()
    assert unit.state == WorkUnitState.DONE


def test_a_whole_file_that_was_read_in_part_is_missing() -> None:
    with pytest.raises(ManifestProblem, match="not read whole"):
        settle(unit_with(whole(A)), manifest({A: 99}, {"1": [[1, 10]]}))


def test_only_the_first_tasks_jobs_are_compared_with_the_claim() -> None:
    read = manifest({A: 100}, {"1": [[1, 10]]})
    unmerged = Processed(events=60, lumis={1: [(1, 10)]}, files=[ProcessedFile(lfn="/store/unmerged/x.root", events=60)])
    later = ManifestJob(node="t2_000000", task=2, processed=unmerged)
    assert settle(unit_with(whole(A)), read.model_copy(update={"jobs": [*read.jobs, later]})) == 100
    with pytest.raises(LedgerViolation, match="read what it did not claim"):
        settle(unit_with(whole(A)), read.model_copy(update={"jobs": [*read.jobs, later.model_copy(update={"task": 1})]}))


MASKED = replace(EVERYTHING, lumi_list={1: ((3, 4), (8, 12))})


def test_masked_files_are_settled_by_exactly_their_wanted_lumis() -> None:
    unit = unit_with(whole(A), whole(B))
    assert settle(unit, manifest({A: 50, B: 20}, {"1": [[3, 4], [8, 12]]}), MASKED) == 70
    unit.refresh_from_db()
    assert unit.state == WorkUnitState.DONE


def test_a_masked_file_with_a_lumi_missing_is_not_done() -> None:
    with pytest.raises(ManifestProblem, match="lumis are missing"):
        settle(unit_with(whole(A), whole(B)), manifest({A: 50, B: 10}, {"1": [[3, 4], [8, 11]]}), MASKED)


def test_lumis_that_nobody_wanted_are_a_violation() -> None:
    with pytest.raises(LedgerViolation, match="lumis that it did not claim"):
        settle(unit_with(whole(A), whole(B)), manifest({A: 60, B: 20}, {"1": [[3, 5], [8, 12]]}), MASKED)


def test_a_masked_file_that_was_not_opened_is_missing_though_its_lumis_are_there() -> None:
    with pytest.raises(ManifestProblem, match=B):
        settle(unit_with(whole(A), whole(B)), manifest({A: 50}, {"1": [[3, 4], [8, 12]]}), MASKED)


def test_run_lists_cut_inside_a_file_too() -> None:
    unit = unit_with(whole(B))
    assert settle(unit, manifest({B: 50}, {"2": [[1, 5]]}), replace(EVERYTHING, run_blacklist=(1,))) == 50


def test_a_file_of_which_everything_is_wanted_must_be_read_whole_under_a_mask_too() -> None:
    with pytest.raises(ManifestProblem, match="not read whole"):
        settle(unit_with(whole(A)), manifest({A: 90}, {"1": [[1, 10]]}), replace(EVERYTHING, lumi_list={1: ((1, 10),)}))


def test_claimed_lumis_are_settled_by_themselves() -> None:
    lumis = (ClaimSpec(ClaimKind.RUN_LUMIS, 3, 4, run=1), ClaimSpec(ClaimKind.RUN_LUMIS, 8, 12, run=1))
    read = {A: 50, B: 20}
    with pytest.raises(ManifestProblem, match="missing"):
        settle(unit_with(*lumis), manifest(read, {"1": [[3, 4], [8, 11]]}), MASKED)
    with pytest.raises(LedgerViolation, match="did not claim"):
        settle(unit_with(*lumis), manifest(read, {"1": [[3, 4], [8, 13]]}), MASKED)
    assert settle(unit_with(*lumis), manifest(read, {"1": [[3, 4], [8, 12]]}), MASKED) == 70


def part(lfn: str, first: int, last: int) -> dict[str, Any]:
    return {"lfn": lfn, "events": last - first + 1, "first_event": first, "last_event": last}


def claimed(lfn: str, first: int, last: int) -> ClaimSpec:
    return ClaimSpec(ClaimKind.FILE_EVENTS, first, last, lfn)


def test_parts_of_a_file_are_settled_by_their_first_and_last_events() -> None:
    unit = unit_with(claimed(A, 0, 9), claimed(A, 20, 39))
    assert settle(unit, manifest_of([part(A, 30, 39), part(A, 0, 9), part(A, 20, 29)], {"1": [[1, 4]]})) == 30


def test_as_many_events_of_another_part_are_not_what_was_claimed() -> None:
    with pytest.raises(LedgerViolation, match="did not claim"):
        settle(unit_with(claimed(A, 0, 9), claimed(A, 20, 29)), manifest_of([part(A, 0, 19)], {}))
    with pytest.raises(LedgerViolation, match="did not claim"):
        settle(unit_with(claimed(A, 0, 19)), manifest_of([part(A, 0, 9), part(A, 0, 9)], {}))
    with pytest.raises(ManifestProblem, match="not read whole"):
        settle(unit_with(claimed(A, 0, 9), claimed(A, 20, 29)), manifest_of([part(A, 0, 9)], {}))
    with pytest.raises(ManifestProblem, match="are not 0 to 9"):
        settle(unit_with(claimed(A, 0, 9)), manifest_of([{**part(A, 0, 9), "events": 8}], {}))


def piece(*files: dict[str, Any], lumis: dict[str, Any], generated: tuple[tuple[int, int, int], ...] = ()) -> dict[str, Any]:
    made = [{"run": run, "first_event": first, "last_event": last} for run, first, last in generated]
    return {"generated": made, "files": list(files), "lumis": lumis}


FIRST, SECOND = piece(part(A, 0, 9), lumis={"1": [[1, 1]]}), piece(part(A, 10, 19), lumis={"1": [[2, 2]]})
READ = ([part(A, 0, 9), part(A, 10, 19)], {"1": [[1, 2]]})


def test_merged_files_hold_each_piece_of_the_claim_once() -> None:
    assert settle(unit_with(claimed(A, 0, 19)), manifest_of(*READ, [FIRST, SECOND])) == 20


def test_files_that_later_jobs_divided_share_pieces() -> None:
    whole_unit = piece(part(A, 0, 9), part(A, 10, 19), lumis=READ[1])
    halves = [{**whole_unit, "shared": True}, {**whole_unit, "shared": True}]
    assert settle(unit_with(claimed(A, 0, 19)), manifest_of(*READ, halves)) == 20
    with pytest.raises(ManifestProblem, match="/P/E-v1/AOD"):
        settle(unit_with(claimed(A, 0, 19)), manifest_of(*READ, [{**FIRST, "shared": True}]))


def test_jobs_that_read_as_many_events_of_one_file_under_masks_of_their_own_may_be_divided_later() -> None:
    read = [{"lfn": A, "events": 40}, {"lfn": A, "events": 40}]
    halves = [{**piece(*read, lumis={"1": [[1, 8]]}), "shared": True}] * 2
    unit = unit_with(ClaimSpec(ClaimKind.RUN_LUMIS, 1, 8, run=1))
    assert settle(unit, manifest_of(read, {"1": [[1, 8]]}, halves), MASKED) == 80


@pytest.mark.parametrize("merged", [[FIRST], [FIRST, FIRST], [FIRST, SECOND, SECOND]], ids=["lost", "swapped", "doubled"])
def test_a_piece_that_is_in_no_merged_file_or_in_two_leaves_the_unit_unaccounted(merged: list[dict[str, Any]]) -> None:
    with pytest.raises(ManifestProblem, match="/P/E-v1/AOD"):
        settle(unit_with(claimed(A, 0, 19)), manifest_of(*READ, merged))


def test_pieces_of_claimed_lumis_and_of_generated_events_are_looked_at_too() -> None:
    unit = unit_with(ClaimSpec(ClaimKind.RUN_LUMIS, 3, 4, run=1))
    whole_file = {"lfn": A, "events": 50}
    with pytest.raises(ManifestProblem, match="lumis twice"):
        twice = [piece(whole_file, lumis={"1": [[3, 4]]}), piece(lumis={"1": [[4, 4]]})]
        settle(unit, manifest_of([whole_file], {"1": [[3, 4]]}, twice), MASKED)
    made = unit_with(ClaimSpec(ClaimKind.GENERATED, 101, 200, run=1, first_lumi=11, last_lumi=12))
    read = manifest_of([], {"1": [[11, 12]]}, [piece(lumis={"1": [[11, 12]]}, generated=((1, 101, 199),))])
    (job,) = read.jobs
    reported = read.model_copy(
        update={"jobs": [job.model_copy(update={"processed": job.processed.model_copy(update={"events": 100})})]}
    )
    with pytest.raises(ManifestProblem, match="do not hold the generated events"):
        settle(made, reported)


def test_a_manifest_that_should_tell_pieces_and_does_not_is_refused_as_it_is_read() -> None:
    with pytest.raises(ValidationError, match="which pieces of the claim"):
        manifest_of(*READ, [None])  # type: ignore[list-item]
