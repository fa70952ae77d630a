"""The database refuses to let two units claim the same work."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from dags_app.models import DAGStatus, WorkUnitClaim
from dags_app.planning.specs import ClaimKind, ClaimSpec
from dags_app.services.plan import claim_rows
from dags_app.services.units import units_fail
from requests_app.models import InputFile
from tests.support.rows import dag_row, input_spec, unit_row, workflow_row

pytestmark = pytest.mark.django_db


def claim(unit, claim_spec: ClaimSpec, files=None) -> None:
    WorkUnitClaim.objects.bulk_create(claim_rows(unit, claim_spec, unit.workflow.number, files or {}))


def generated(first: int, last: int, first_lumi: int, last_lumi: int) -> ClaimSpec:
    return ClaimSpec(ClaimKind.GENERATED, first, last, run=1, first_lumi=first_lumi, last_lumi=last_lumi)


@pytest.fixture(name="units")
def _units():
    dag = dag_row(workflow_row(), DAGStatus.READY)
    return unit_row(dag, 0), unit_row(dag, 1)


def test_neighbouring_ranges_may_be_claimed(units) -> None:
    claim(units[0], generated(1, 100, 1, 10))
    claim(units[1], generated(101, 200, 11, 20))
    assert WorkUnitClaim.objects.count() == 4


@pytest.mark.parametrize(
    "second",
    [generated(100, 199, 11, 20), generated(50, 60, 11, 20), generated(101, 200, 10, 20)],
    ids=["edge", "inside", "lumi"],
)
def test_an_overlap_of_events_or_lumis_is_refused(units, second: ClaimSpec) -> None:
    claim(units[0], generated(1, 100, 1, 10))
    with pytest.raises(IntegrityError, match="live_claims_disjoint"), transaction.atomic():
        claim(units[1], second)


def test_the_same_numbers_of_another_workflow_are_no_overlap(units) -> None:
    claim(units[0], generated(1, 100, 1, 10))
    claim(unit_row(dag_row(workflow_row(), DAGStatus.READY)), generated(1, 100, 1, 10))
    assert WorkUnitClaim.objects.count() == 4


def test_work_of_a_failed_unit_may_be_claimed_again(units) -> None:
    claim(units[0], generated(1, 100, 1, 10))
    units_fail(units=[units[0]], problem="for a test")
    claim(units[1], generated(1, 100, 1, 10))
    assert WorkUnitClaim.objects.filter(live=True).count() == 2


def test_events_of_one_file_are_claimed_once_and_files_do_not_collide() -> None:
    workflow = workflow_row(spec=input_spec())
    dag = dag_row(workflow, DAGStatus.READY)
    files = [
        InputFile.objects.create(workflow=workflow, lfn=f"/store/data/{n}.root", block_name="/a/b/C#1", size_bytes=1, events=100)
        for n in range(2)
    ]
    ids = {f.lfn: (f.pk, f.events) for f in files}
    first, second = unit_row(dag, 0), unit_row(dag, 1)
    claim(first, ClaimSpec(ClaimKind.FILE_EVENTS, 0, 49, files[0].lfn), ids)
    claim(second, ClaimSpec(ClaimKind.FILE_EVENTS, 50, 99, files[0].lfn), ids)
    claim(second, ClaimSpec(ClaimKind.FILE_EVENTS, 0, 49, files[1].lfn), ids)
    with pytest.raises(IntegrityError, match="live_claims_disjoint"), transaction.atomic():
        claim(second, ClaimSpec(ClaimKind.FILE_EVENTS, 49, 49, files[0].lfn), ids)


def test_a_file_without_events_is_claimed_as_such() -> None:
    workflow = workflow_row(spec=input_spec())
    empty = InputFile.objects.create(workflow=workflow, lfn="/store/data/e.root", block_name="/a/b/C#1", size_bytes=1, events=0)
    (row,) = claim_rows(
        unit_row(dag_row(workflow)), ClaimSpec(ClaimKind.FILE_EVENTS, 0, 0, empty.lfn), 1, {empty.lfn: (empty.pk, 0)}
    )
    assert row.events == 0
