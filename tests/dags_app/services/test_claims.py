"""The database refuses to let two units claim the same work."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dags_app.models import DAGStatus, WorkUnit, WorkUnitClaim
from dags_app.planning.specs import ClaimKind, ClaimSpec
from dags_app.services.claims import claims_of
from dags_app.services.plan import claim_rows, claims_record
from dags_app.services.units import units_fail
from requests_app.models import InputFile
from tests.support.locking import aside
from tests.support.rows import dag_row, input_spec, unit_row, workflow_row
from tests.support.waiting import until
from wms2.errors import LedgerViolation

pytestmark = pytest.mark.django_db


def claim(unit: WorkUnit, claim_spec: ClaimSpec, files: dict[str, tuple[int, int]] | None = None) -> None:
    with transaction.atomic():
        claims_record(claim_rows(unit.pk, claim_spec, unit.workflow.number, files or {}))


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
    with pytest.raises(LedgerViolation, match=r"mg_000001 claims .*, of which mg_000000 has 1 to 1"):
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
    reported = "mg_000001 claims events of /store/data/0.root, 49 to 49, of which mg_000000 has 0 to 49"
    with pytest.raises(LedgerViolation, match=reported):
        claim(second, ClaimSpec(ClaimKind.FILE_EVENTS, 49, 49, files[0].lfn), ids)


def test_a_file_without_events_is_claimed_as_such() -> None:
    workflow = workflow_row(spec=input_spec())
    empty = InputFile.objects.create(workflow=workflow, lfn="/store/data/e.root", block_name="/a/b/C#1", size_bytes=1, events=0)
    unit = unit_row(dag_row(workflow))
    claim(unit, ClaimSpec(ClaimKind.FILE_EVENTS, 0, 0, empty.lfn), {empty.lfn: (empty.pk, 0)})
    assert claims_of([unit.pk])[unit.pk][0].events == 0


def test_claims_of_many_units_are_read_at_once(units, django_assert_num_queries) -> None:
    claim(units[1], generated(1, 100, 1, 10))
    claim(units[0], generated(101, 200, 11, 20))
    units_fail(units=[units[1]], problem="for a test")
    with django_assert_num_queries(1):
        found = claims_of([unit.pk for unit in units])
    assert [(c.first, c.last) for c in found[units[0].pk]] == [(101, 200), (11, 20)]
    assert found[units[1].pk] == [], "what was given back is claimed no more"


# --- whoever writes the rows, and in whatever order


def row(unit: WorkUnit, first: int, last: int, *, run: int = 1, live: bool = True) -> WorkUnitClaim:
    return WorkUnitClaim(
        unit=unit, kind=WorkUnitClaim.KIND_RUN_LUMIS, scope=unit.workflow.number, run=run, first=first, last=last, live=live
    )


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (WorkUnitClaim.KIND_FILE_EVENTS, {}),
        (WorkUnitClaim.KIND_FILE_EVENTS, {"input_file_id": 1, "scope": 2}),
        (WorkUnitClaim.KIND_RUN_LUMIS, {"input_file_id": 1, "scope": 1}),
        (4, {}),
    ],
    ids=["no file", "of another file", "lumis of a file", "unknown kind"],
)
def test_a_claim_without_the_file_that_it_is_of_is_refused(units, kind: int, changes: dict[str, int]) -> None:
    """The same work could be claimed beside it: overlaps are looked for by file, or by request and run."""
    for live in (True, False):
        made = row(units[0], 1, 10, run=0 if kind == WorkUnitClaim.KIND_FILE_EVENTS else 1, live=live)
        made.kind = kind
        for name, value in changes.items():
            setattr(made, name, value)
        with pytest.raises(IntegrityError, match="claim_"), transaction.atomic():
            made.save()


SPANS = st.tuples(st.integers(1, 2), st.integers(1, 30), st.integers(0, 8)).map(lambda s: (s[0], s[1], s[1] + s[2]))
STATEMENTS = st.lists(st.tuples(st.booleans(), st.lists(SPANS, min_size=1, max_size=4)), min_size=1, max_size=6)


@given(STATEMENTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_statement_is_refused_exactly_when_it_would_double_work(units, statements: list) -> None:
    """New rows, or dead ones that are made live, some of them in one statement: against a model of plain sets."""
    taken: set[tuple[int, int]] = set()
    with transaction.atomic():
        for inserted, spans in statements:
            wanted = [(run, lumi) for run, first, last in spans for lumi in range(first, last + 1)]
            free = len(wanted) == len(set(wanted)) and taken.isdisjoint(wanted)
            try:
                with transaction.atomic():
                    rows = [row(units[0], first, last, run=run, live=inserted) for run, first, last in spans]
                    made = WorkUnitClaim.objects.bulk_create(rows)
                    if not inserted:
                        WorkUnitClaim.objects.filter(pk__in=[each.pk for each in made]).update(live=True)
            except IntegrityError as error:
                assert "live_claims_disjoint" in str(error)
                assert not free, (spans, taken)
            else:
                assert free, (spans, taken)
                taken.update(wanted)
        transaction.set_rollback(True)


def test_a_claim_can_be_cut_and_its_piece_taken_by_another_unit(units) -> None:
    claim(units[0], ClaimSpec(ClaimKind.RUN_LUMIS, 1, 10, run=1))
    WorkUnitClaim.objects.update(last=6)
    row(units[1], 7, 10).save()
    with pytest.raises(IntegrityError, match="live_claims_disjoint"), transaction.atomic():
        WorkUnitClaim.objects.filter(unit=units[0]).update(last=7)


def test_what_is_claimed_belongs_to_the_units_workflow(units) -> None:
    other = workflow_row(spec=input_spec())
    strange = InputFile.objects.create(workflow=other, lfn="/store/data/s.root", block_name="/a/b/C#1", size_bytes=1, events=10)
    for wrong in (
        WorkUnitClaim(unit=units[0], kind=WorkUnitClaim.KIND_RUN_LUMIS, scope=other.number, run=1, first=1, last=2),
        WorkUnitClaim(unit_id=0, kind=WorkUnitClaim.KIND_RUN_LUMIS, scope=other.number, run=1, first=1, last=2),
        WorkUnitClaim(
            unit=units[0], kind=WorkUnitClaim.KIND_FILE_EVENTS, input_file=strange, scope=strange.pk, run=0, first=0, last=9
        ),
    ):
        with pytest.raises(IntegrityError, match="claim_within_workflow"), transaction.atomic():
            wrong.save()


@pytest.mark.django_db(transaction=True)
def test_of_two_that_claim_the_same_at_the_same_time_one_is_refused() -> None:
    """The second cannot see the rows of the first, which has not committed: it waits, then looks."""
    dag = dag_row(workflow_row(), DAGStatus.READY)
    units = unit_row(dag, 0), unit_row(dag, 1)
    refused: list[str] = []

    def second() -> None:
        try:
            claim(units[1], ClaimSpec(ClaimKind.RUN_LUMIS, 5, 15, run=1))
        except LedgerViolation as error:
            refused.append(str(error))

    with transaction.atomic():
        claim(units[0], ClaimSpec(ClaimKind.RUN_LUMIS, 1, 10, run=1))
        thread = aside(second)
        until(_somebody_waits, "the other claims too", seconds=30)
        assert not refused
    thread.join(30)
    assert refused == [
        "work that is claimed already was planned again: mg_000001 claims lumis of run 1, 5 to 15, of which mg_000000 has 1 to 10"
    ]
    assert list(WorkUnitClaim.objects.values_list("unit", flat=True)) == [units[0].pk]


@pytest.mark.django_db(transaction=True)
def test_claims_are_not_taken_where_those_of_others_cannot_be_seen() -> None:
    unit = unit_row(dag_row(workflow_row(), DAGStatus.READY))
    with pytest.raises(DatabaseError, match="READ COMMITTED"), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        row(unit, 1, 10).save()


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'")
        return bool(cursor.fetchone()[0])
