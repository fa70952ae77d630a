"""A unit is done when its manifest equals its claim: files by events, masked files by their lumis, lumis by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dags_app.manifest import Manifest, ManifestJob, ManifestProblem, Processed, ProcessedFile
from dags_app.models import WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning.specs import ClaimKind, ClaimSpec, InputSpec, LumiRanges
from dags_app.planning.wanted import WantedLumis
from dags_app.services.plan import claim_rows
from dags_app.services.units import unit_settle
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
    WorkUnitClaim.objects.bulk_create([row for claim in claims for row in claim_rows(unit, claim, workflow.number, ids)])
    return unit


def whole(lfn: str) -> ClaimSpec:
    return ClaimSpec(ClaimKind.FILE_EVENTS, 0, FILES[lfn][0] - 1, lfn)


def manifest(files: dict[str, int], lumis: dict[str, Any]) -> Manifest:
    processed = {"events": sum(files.values()), "lumis": lumis, "files": [{"lfn": f, "events": n} for f, n in files.items()]}
    return Manifest.model_validate(
        {
            "schema": "wms2.manifest/1",
            "request_name": "r",
            "workflow_id": "w",
            "dag_id": "d",
            "unit": "mg_000000",
            "fence": 1,
            "site": "T2_CH_CERN",
            "rse": "T2_CH_CERN",
            "jobs": [{"node": "proc_000000", "processed": processed}],
            "outputs": [],
        }
    )


def settle(unit: WorkUnit, read: Manifest, selection: InputSpec = EVERYTHING) -> int:
    return unit_settle(unit=unit, dag=unit.dag, manifest=read, sha256="x" * 64, wanted=WantedLumis(selection))


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
