"""Rounds of a request split by lumi, against plain sets: each wanted lumi is done once, or excluded or refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning import lumis, writer
from dags_app.planning.plan import LeftOut
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputSpec, LumiRanges, RefusedLumi, SplittingAlgo
from requests_app.lease import Evaluation, evaluating
from requests_app.models import InputFile, InputLumis, LumiFate, Request, RequestStatus, Workflow
from requests_app.services import input_files_restore
from requests_app.work import planner, sizing
from requests_app.work.exclusions import bad_input_read
from requests_app.work.input_lumis import lumis_rebuild, lumis_refuse
from requests_app.work.ledger import Ledger, ledger_check, ledger_of
from requests_app.work.planner import round_plan
from requests_app.work.remaining import record_left_out
from requests_app.work.rounds import round_close
from requests_app.work.spec import spec_of
from sites_app.models import Site, SiteRse
from tests.support.limits import set_limits
from tests.support.rows import input_spec, workflow_row
from tests.support.scripted.progress import while_planned
from wms2.errors import LedgerViolation, StaleState

pytestmark = pytest.mark.django_db(transaction=True)
FNAL, CERN = "T1_US_FNAL_Disk", "T2_CH_CERN"
Lumi = tuple[int, int]


@dataclass(frozen=True)
class File:
    lfn: str
    lumis: frozenset[Lumi]
    rses: tuple[str, ...]
    events: int = 100


@pytest.fixture(autouse=True)
def _knobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_SUBMIT_ROOT", str(tmp_path))
    set_limits(monkeypatch, jobs_per_work_unit=2)
    monkeypatch.setattr(sizing, "MAX_WORK_UNITS_PER_DAG", 3)
    monkeypatch.setattr(writer, "sync_directory", lambda path: None)
    monkeypatch.setattr(planner, "validity_refresh", lambda **_: False)  # DBS has none of this input


def furnish() -> None:
    for name, rse in {"T1_US_FNAL": FNAL, "T2_CH_CERN": CERN}.items():
        site, _ = Site.objects.get_or_create(name=name)
        SiteRse.objects.get_or_create(site=site, rse=rse, defaults={"seen_at": "2026-01-01T00:00:00Z"})


def request_for(
    files: Sequence[File], *, lumi_list: LumiRanges | None = None, lumis_per_job: int = 2, **fields: object
) -> Workflow:
    spec = input_spec(algorithm=SplittingAlgo.LUMI_BASED, lumis_per_job=lumis_per_job)
    wanted = InputSpec(dataset="/Input/Era-v1/RAW", lumi_list=lumi_list or {}, **fields)  # type: ignore[arg-type]
    workflow = workflow_row(spec=replace(spec, input=wanted))
    for file in files:
        InputFile.objects.create(
            workflow=workflow,
            lfn=file.lfn,
            block_name="/Input/Era-v1/RAW#1",
            size_bytes=1,
            events=file.events,
            lumis=lumis.to_json(lumis.from_pairs(file.lumis)),
            rses=list(file.rses),
        )
    lumis_rebuild(workflow, wanted)
    return workflow


def plan(workflow: Workflow) -> DAG | None:
    Request.objects.filter(pk=workflow.request.pk).update(status=RequestStatus.PLANNING)
    workflow.request.refresh_from_db()
    with evaluating(workflow.request.pk, owner="test") as evaluation:
        assert isinstance(evaluation, Evaluation)
        return round_plan(evaluation)


def claimed(dag: DAG) -> list[Lumi]:
    rows = WorkUnitClaim.objects.filter(unit__dag=dag, kind=WorkUnitClaim.KIND_RUN_LUMIS)
    return [(c.run, lumi) for c in rows for lumi in range(c.first, c.last + 1)]


def end(dag: DAG, done: Sequence[bool]) -> None:
    """The DAG has ended: some of its units are done, the others give their claims back."""
    for unit, well in zip(WorkUnit.objects.filter(dag=dag).order_by("index"), done, strict=False):
        if well:
            WorkUnit.objects.filter(pk=unit.pk).update(state=WorkUnitState.DONE, manifest_sha256="x" * 64, fence=1)
    number = dag.round.index + 1
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.PARTIAL, fence=number, dagman_cluster_id=str(dag.pk)[:8])
    with transaction.atomic():
        round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))


def lumis_of_units(workflow: Workflow, state: WorkUnitState) -> set[Lumi]:
    rows = WorkUnitClaim.objects.filter(unit__workflow=workflow, unit__state=state, live=True)
    return {(c.run, lumi) for c in rows for lumi in range(c.first, c.last + 1)}


def account(workflow: Workflow) -> Ledger:
    ledger = ledger_check(ledger_of(workflow))
    files = ledger.done_files + ledger.planned_files + ledger.attempted_files + ledger.excluded_files + ledger.left_files
    assert files == ledger.all_files == InputFile.objects.filter(workflow=workflow).count()
    deciding = ledger_of(workflow, whole=False)
    assert (deciding.summary(), deciding.work_left, deciding.work_done) == (ledger.summary(), ledger.work_left, ledger.work_done)
    return ledger


runs_and_lumis = st.frozensets(st.tuples(st.integers(1, 2), st.integers(1, 12)), min_size=1, max_size=10)
inputs = st.lists(
    st.tuples(runs_and_lumis, st.sampled_from([(FNAL,), (CERN,), (FNAL, CERN), ()]), st.sampled_from([0, 7, 100])),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(files=inputs, mask=st.none() | runs_and_lumis, ends=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=3))
def test_whatever_fails_each_wanted_lumi_is_done_once_or_waits_by_name(
    files: list[tuple[frozenset[Lumi], tuple[str, ...], int]], mask: frozenset[Lumi] | None, ends: list[list[bool]]
) -> None:
    furnish()
    given_files = [File(f"/store/data/{n}.root", held, rses, events) for n, (held, rses, events) in enumerate(files)]
    wanted = {lumi for file in given_files for lumi in file.lumis if mask is None or lumi in mask}
    workflow = request_for(given_files, lumi_list=lumis.from_pairs(mask) if mask else None)
    rounds = [*ends, *[[True] * 3] * 40]  # at last nothing fails any more
    for outcome in rounds:
        before = account(workflow)
        assert before.all_lumis == len(wanted)
        done_before = lumis_of_units(workflow, WorkUnitState.DONE)
        dag = plan(workflow)
        after = account(workflow)
        assert after.all_lumis == len(wanted)
        if dag is None:
            break
        takes = claimed(dag)
        assert len(takes) == len(set(takes)), "no lumi is in two units"
        assert set(takes) <= wanted - done_before, "only what is left"
        assert after.planned_lumis == len(takes)
        end(dag, outcome)
    else:
        pytest.fail("it never comes to an end")

    ledger = account(workflow)
    assert not InputLumis.objects.filter(workflow=workflow).exclude(fate=LumiFate.WANTED).exists(), "nothing is given up"
    done = lumis_of_units(workflow, WorkUnitState.DONE)
    places = {lumi: [set(file.rses) for file in given_files if lumi in file.lumis] for lumi in wanted}
    assert done == {lumi for lumi, of_files in places.items() if set.intersection(*of_files)}, "what waits has no site in common"
    assert (ledger.done_lumis, ledger.left_lumis + ledger.attempted_lumis) == (len(done), len(wanted - done))
    waiting = InputFile.objects.filter(workflow=workflow, waiting_since__isnull=False).values_list("lfn", flat=True)
    of_left = {file.lfn for file in given_files if file.lumis & (wanted - done)}
    assert set(waiting) <= of_left, "only files of what is left"
    assert bool(waiting) == bool(of_left), "and they are shown"


def test_a_lumi_in_several_files_counts_once_and_files_are_done_with_their_last_lumi() -> None:
    furnish()
    files = [
        File("/store/data/a.root", frozenset((1, n) for n in range(1, 5)), (FNAL,)),
        File("/store/data/b.root", frozenset((1, n) for n in range(4, 9)), (FNAL,)),
        File("/store/data/c.root", frozenset((2, n) for n in range(1, 5)), ()),
    ]
    workflow = request_for(files)
    assert account(workflow).all_lumis == 12
    dag = plan(workflow)
    assert dag is not None
    ledger = account(workflow)
    assert ledger.summary() == "0 lumis done, 8 planned, 0 attempted, 0 excluded, 4 left of 12"
    assert (ledger.planned_files, ledger.left_files) == (2, 1)
    assert ledger.planned_events + ledger.left_events == ledger.all_events == 300
    end(dag, [True, False])
    ledger = account(workflow)
    assert (ledger.done_lumis, ledger.attempted_lumis) == (4, 4)
    assert (ledger.done_files, ledger.attempted_files) == (1, 1)
    again = plan(workflow)
    assert again is not None
    assert sorted(claimed(again)) == [(1, 5), (1, 6), (1, 7), (1, 8)], "exactly what is left"


def test_untried_lumis_are_planned_before_those_of_failed_units() -> None:
    furnish()
    files = [File(f"/store/data/{n}.root", frozenset((1, 6 * n + k) for k in range(1, 7)), (FNAL,)) for n in range(3)]
    workflow = request_for(files, lumis_per_job=2)  # 9 jobs, 5 units, 3 fit a DAG
    first = plan(workflow)
    assert first is not None
    assert sorted(claimed(first)) == [(1, n) for n in range(1, 13)]
    end(first, [True, False, True])
    second = plan(workflow)
    assert second is not None
    claims = WorkUnitClaim.objects.filter(unit__dag=second).order_by("unit__index", "id")
    assert [(c.first, c.last) for c in claims] == [(13, 16), (5, 6), (17, 18), (7, 8)], "5 to 8 fill up"


def test_refused_lumis_are_kept_with_their_reason_and_never_planned() -> None:
    furnish()
    workflow = request_for([File("/store/data/a.root", frozenset((1, n) for n in range(1, 9)), (FNAL,))])
    wanted = spec_of(workflow).input
    assert wanted is not None
    with transaction.atomic():
        lumis_refuse(workflow, [RefusedLumi(1, n, "too long") for n in (3, 4, 7)])
        lumis_refuse(workflow, [RefusedLumi(1, 4, "too long")])
        lumis_rebuild(workflow, wanted)
    rows = InputLumis.objects.filter(workflow=workflow, fate=LumiFate.REFUSED).order_by("span")
    assert [(r.run, r.span.lower, r.span.upper - 1, r.reason) for r in rows] == [(1, 3, 4, "too long"), (1, 7, 7, "too long")]
    dag = plan(workflow)
    assert dag is not None
    assert sorted(claimed(dag)) == [(1, n) for n in (1, 2, 5, 6, 8)]
    ledger = account(workflow)
    assert ledger.summary() == "0 lumis done, 5 planned, 0 attempted, 0 excluded, 3 refused, 0 left of 8"


def test_a_file_is_not_let_in_while_a_round_may_be_planned_with_its_lumis_from_other_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    furnish()
    held = frozenset((1, n) for n in range(1, 5))
    workflow = request_for([File("/store/data/a.root", held, (FNAL,)), File("/store/data/b.root", held, (FNAL,))])
    spec, lost = spec_of(workflow), [ExcludedFile("/store/data/b.root", "not there", ExclusionKind.LOST)]
    record_left_out(workflow, spec, LeftOut(files=lost))
    refused: list[str] = []

    def restore(request: Request) -> None:
        with pytest.raises(StaleState) as error:
            input_files_restore(request=request, lfns=["/store/data/b.root"], actor="olga", reason="it is there")
        refused.append(str(error.value))

    while_planned(monkeypatch, workflow.request, restore)
    assert plan(workflow) is not None
    assert refused and "is planned" in refused[0]
    assert InputFile.objects.get(lfn="/store/data/b.root").excluded_kind == ExclusionKind.LOST, "its share is not read, by name"


def test_files_of_a_lumi_without_a_common_site_wait_since_they_were_first_planned() -> None:
    """Each could be read by itself; the alert on what waits counts from then."""
    furnish()
    held = frozenset([(1, 1)])
    workflow = request_for([File("/store/data/a.root", held, (FNAL,)), File("/store/data/b.root", held, (CERN,))])
    assert plan(workflow) is None
    files = InputFile.objects.filter(workflow=workflow).order_by("lfn").values_list("waiting_since", flat=True)
    before = list(files)
    assert all(before)
    assert plan(workflow) is None
    assert list(files.all()) == before


def test_a_lumi_claimed_outside_what_is_wanted_is_a_violation() -> None:
    furnish()
    workflow = request_for([File("/store/data/a.root", frozenset((1, n) for n in range(1, 9)), (FNAL,))])
    assert plan(workflow) is not None
    InputLumis.objects.all().delete()
    with transaction.atomic():
        InputFile.objects.update(lumis={"1": [[1, 6]]})
        lumis_rebuild(workflow, InputSpec(dataset="/Input/Era-v1/RAW"))
    with pytest.raises(LedgerViolation, match="lumis do not add up"):
        ledger_check(ledger_of(workflow))


def test_a_large_input_is_counted_with_a_few_queries() -> None:
    workflow = request_for([])
    InputFile.objects.bulk_create(
        InputFile(
            workflow=workflow,
            lfn=f"/store/data/{n:06d}.root",
            block_name="/x#1",
            size_bytes=1,
            events=20000,
            lumis={str(1 + n // 100): [[200 * (n % 100) + 1, 200 * (n % 100) + 200]]},
            rses=[FNAL],
        )
        for n in range(2000)
    )
    with CaptureQueriesContext(connection) as queries:
        lumis_rebuild(workflow, InputSpec(dataset="/Input/Era-v1/RAW"))
        ledger = account(workflow)
    assert ledger.all_lumis == ledger.left_lumis == 400_000
    assert InputLumis.objects.count() == 20, "neighbouring files make one interval"
    assert len(queries) < 20
