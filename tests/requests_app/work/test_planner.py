"""Planning a round against the database: what is left is planned once, in order, and written before it is recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from dags_app.models import DAG, DAGStatus, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.payload.contract.documents import Pileup, read_job
from dags_app.planning import writer
from dags_app.planning.specs import DagSpec, PileupBlock, PileupDataset, SplittingAlgo, TaskSpec
from dags_app.services.units import units_fail
from requests_app.lease import Evaluation, evaluating
from requests_app.models import EvaluationLease, InputFile, Request, RequestStatus, Workflow
from requests_app.work import planner, sizing
from requests_app.work.exclusions import bad_input_read
from requests_app.work.ledger import ledger_check, ledger_of
from requests_app.work.planner import round_plan, round_plan_leftovers
from requests_app.work.rounds import dag_discard, round_close
from sites_app.models import Site, SiteRse
from tests.support.rows import generation_spec, input_spec, request_row, workflow_row
from wms2.conf import conf
from wms2.errors import LeaseLost, PlanningRefused

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _submit_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WMS2_SUBMIT_ROOT", str(tmp_path))
    conf.cache_clear()
    monkeypatch.setattr(sizing, "MAX_WORK_UNITS_PER_DAG", 3)
    monkeypatch.setattr(planner, "validity_refresh", lambda **_: False)  # DBS has none of this input
    return tmp_path


@pytest.fixture(name="sites", autouse=True)
def _sites() -> None:
    for name, rse in {"T1_US_FNAL": "T1_US_FNAL_Disk", "T2_CH_CERN": "T2_CH_CERN"}.items():
        SiteRse.objects.create(site=Site.objects.create(name=name), rse=rse, seen_at="2026-01-01T00:00:00Z")


def plan(workflow: Workflow) -> DAG | None:
    Request.objects.filter(pk=workflow.request.pk).update(status=RequestStatus.PLANNING)
    with evaluating(workflow.request.pk, owner="test") as evaluation:
        assert isinstance(evaluation, Evaluation)
        return round_plan(evaluation)


def end(dag: DAG, state: WorkUnitState) -> None:
    """The DAG has ended and its round is closed; all units done, or none."""
    if state is WorkUnitState.DONE:
        WorkUnit.objects.filter(dag=dag).update(state=state, manifest_sha256="x" * 64, fence=1)
    DAG.objects.filter(pk=dag.pk).update(
        status=DAGStatus.PARTIAL, fence=dag.round.index + 1, dagman_cluster_id=str(dag.round.index + 1)
    )
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))


def spans(dag: DAG, kind: int) -> list[tuple[int, int]]:
    claims = WorkUnitClaim.objects.filter(unit__dag=dag, kind=kind).order_by("first")
    return [(c.first, c.last) for c in claims]


def test_a_round_takes_what_fits_one_dag_and_the_next_goes_on_where_it_ended(tmp_path: Path) -> None:
    workflow = workflow_row()  # 3200 events: 32 jobs, 4 units; 3 fit
    first = plan(workflow)
    assert first is not None
    assert spans(first, WorkUnitClaim.KIND_GENERATED) == [(1, 800), (801, 1600), (1601, 2400)]
    assert spans(first, WorkUnitClaim.KIND_GENERATED_LUMIS) == [(1, 80), (81, 160), (161, 240)]
    assert not writer.changed_files(Path(first.submit_dir))
    end(first, WorkUnitState.DONE)

    second = plan(workflow)
    assert second is not None
    assert spans(second, WorkUnitClaim.KIND_GENERATED) == [(2401, 3200)]
    end(second, WorkUnitState.DONE)

    assert plan(workflow) is None, "nothing is left"
    ledger = ledger_check(ledger_of(Workflow.objects.get(pk=workflow.pk)))
    assert ledger.done_events == 3200


def test_a_task_of_which_a_job_would_outlast_the_wall_clock_is_refused_by_name() -> None:
    """Two tasks of 100 events in ten lumis a job: Reco's lumi of ten events takes 5 h, but one of 1100 h does not go."""
    spec = generation_spec()
    digi = replace(spec.steps[-1], number=2, name="Reco", input_step=spec.steps[0].name, input_module=spec.outputs[0].module)
    source = spec.steps[0].name
    tasks = (
        TaskSpec(1, spec.steps[0].name, (spec.steps[0].name,), spec.resources),
        TaskSpec(
            2, "Reco", ("Reco",), replace(spec.resources, time_per_event_seconds=1800.0), source, source, digi.input_module, 24
        ),
    )
    chain = replace(spec, steps=(spec.steps[0], digi), tasks=tasks)
    dag = plan(workflow_row(spec=chain))
    assert dag is not None
    later = [line for line in (Path(dag.submit_dir) / "mg_000000/group.dag").read_text().splitlines() if "VARS t2_" in line]
    assert len(later) == 8 * 5 and all('wall_minutes="600"' in line for line in later), "20 events of 100 each"

    slow = replace(tasks[1], resources=replace(spec.resources, time_per_event_seconds=4 * 99_000.0))
    with pytest.raises(PlanningRefused, match=r"task 2 \(Reco\) are expected to take longer than 48 h"):
        plan(workflow_row(spec=replace(chain, tasks=(tasks[0], slow), request_name="slow_1")))


@pytest.mark.parametrize("wanted", ["", "5,40"])
def test_the_operators_pauses_of_stage_out_reach_the_jobs(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("WMS2_STAGE_OUT_PAUSES", wanted)
    conf.cache_clear()
    dag = plan(workflow_row())
    conf.cache_clear()
    assert dag is not None
    job = read_job(Path(dag.submit_dir))
    assert job.stage_out_pauses_seconds == ((5, 40) if wanted else (60, 300, 600))


def test_a_later_round_goes_on_in_deterministic_pileup_where_the_one_before_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    premix = PileupDataset("/Neutrino/Premix-v1/PREMIX", "mc", (PileupBlock("/b#1", ("T1_US_FNAL",), 10, ("/store/mc/p.root",)),))
    monkeypatch.setattr(planner, "pileup_resolve", lambda spec: (premix,))
    spec = input_spec(algorithm=SplittingAlgo.EVENT_BASED, events_per_job=40)
    mixing = replace(spec.steps[0], pileup=(Pileup("mc", premix.dataset),), deterministic_pileup=True)
    workflow = workflow_row(spec=replace(spec, steps=(mixing,)))
    for number in range(4):
        InputFile.objects.create(
            workflow=workflow, lfn=f"/store/data/f{number}.root", block_name="/b#1", size_bytes=1, events=400,
            lumis={"1": [[number + 1, number + 1]]}, rses=["T1_US_FNAL_Disk"],
        )  # fmt: skip

    def begins(dag: DAG | None) -> list[int]:
        assert dag is not None
        units = sorted(Path(dag.submit_dir).glob("mg_*/unit.json"))
        return [job["mixed_before"] for unit in units for job in json.loads(unit.read_text())["jobs"]]

    first = plan(workflow)
    assert begins(first) == list(range(0, 24 * 40, 40))
    assert first is not None
    end(first, WorkUnitState.DONE)
    assert begins(plan(workflow)) == list(range(24 * 40, 40 * 40, 40))


def test_lost_events_are_made_up_for_with_later_numbers() -> None:
    workflow = workflow_row()
    first = plan(workflow)
    assert first is not None
    end(first, WorkUnitState.FAILED)
    second = plan(workflow)
    assert second is not None
    assert spans(second, WorkUnitClaim.KIND_GENERATED)[0][0] == 2401, "offsets only move forward"


def test_rounds_that_lose_too_much_stop_at_a_multiple_of_the_request() -> None:
    workflow = workflow_row()
    for _ in range(3):
        dag = plan(workflow)
        assert dag is not None
        end(dag, WorkUnitState.FAILED)
        if Workflow.objects.get(pk=workflow.pk).next_first_event > 3200:
            break
    with pytest.raises(PlanningRefused, match="are left"):
        plan(workflow)


def test_a_discarded_dag_gives_everything_back() -> None:
    workflow = workflow_row()
    dag = plan(workflow)
    assert dag is not None
    with transaction.atomic():
        dag_discard(dag=dag, reason="test")
    workflow = Workflow.objects.get(pk=workflow.pk)
    assert (workflow.next_first_event, workflow.next_first_lumi) == (1, 1)
    assert not WorkUnit.objects.exists()
    again = plan(workflow)
    assert again is not None
    assert again.pk != dag.pk
    assert spans(again, WorkUnitClaim.KIND_GENERATED) == [(1, 800), (801, 1600), (1601, 2400)]


def test_a_directory_left_by_a_killed_attempt_is_not_used_and_goes(tmp_path: Path) -> None:
    workflow = workflow_row()
    dag = plan(workflow)
    assert dag is not None
    directory = Path(dag.submit_dir)
    WorkUnit.objects.all().delete()
    DAG.objects.all().delete()
    workflow.rounds.all().delete()
    Workflow.objects.filter(pk=workflow.pk).update(next_first_event=1, next_first_lumi=1)
    (directory / "workflow.dag").write_text("something else")
    (directory / "SHA256SUMS").write_text("of something else")

    again = plan(workflow)
    assert again is not None
    assert Path(again.submit_dir) != directory
    round_plan_leftovers(again)  # before its submission
    assert not writer.changed_files(Path(again.submit_dir))
    assert not directory.exists()


def test_an_evaluation_that_was_replaced_takes_no_directory_away_that_its_successor_has_recorded(monkeypatch) -> None:
    """The first has found that something else stands in its place, and is paused there until the second has recorded its DAG."""
    workflow = workflow_row()
    recorded: list[DAG | None] = []
    write = writer.write_dag_directory

    def paused(spec: DagSpec, programs: writer.Programs, *, parent: Path) -> writer.WrittenDag:
        if parent.name == workflow.request_id:
            (parent / spec.dag_id).mkdir(parents=True)
            (parent / spec.dag_id / "SHA256SUMS").write_text("of something else")
            return write(spec, programs, parent=parent)
        monkeypatch.setattr(writer, "write_dag_directory", write)
        EvaluationLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        recorded.append(plan(workflow))
        return write(spec, programs, parent=parent)

    monkeypatch.setattr(writer, "write_dag_directory", paused)
    with pytest.raises((LeaseLost, IntegrityError)):
        plan(workflow)
    (dag,) = recorded
    assert dag == DAG.objects.get()
    assert not writer.changed_files(Path(dag.submit_dir))


def test_input_files_are_planned_at_their_sites_and_those_without_a_replica_wait() -> None:
    workflow = workflow_row(spec=input_spec(files_per_job=2), request=request_row(RequestStatus.QUEUED))
    for n, rses in enumerate([["T1_US_FNAL_Disk"], ["T1_US_FNAL_Disk"], ["T2_CH_CERN"], [], ["T9_Unknown"]]):
        InputFile.objects.create(
            workflow=workflow, lfn=f"/store/data/{n}.root", block_name="/a/b/C#1", size_bytes=1, events=10, rses=rses
        )
    dag = plan(workflow)
    assert dag is not None
    assert [u.jobs for u in WorkUnit.objects.order_by("index")] == [1, 1]
    waiting = {f.lfn: f.waiting_reason for f in InputFile.objects.filter(waiting_since__isnull=False)}
    assert waiting == dict.fromkeys(("/store/data/3.root", "/store/data/4.root"), "no replica at any site")
    ledger = ledger_check(ledger_of(workflow))
    assert (ledger.planned_files, ledger.excluded_files, ledger.left_files) == (3, 0, 2)


def test_files_of_failed_units_are_planned_after_the_fresh_ones() -> None:
    workflow = workflow_row(spec=input_spec())
    for n in range(4):
        InputFile.objects.create(
            workflow=workflow, lfn=f"/store/data/{n}.root", block_name="/a/b/C#1", size_bytes=1, events=10, rses=["T2_CH_CERN"]
        )
    first = plan(workflow)
    assert first is not None
    units_fail(units=list(WorkUnit.objects.filter(dag=first)), problem="test")
    end(first, WorkUnitState.FAILED)
    InputFile.objects.create(
        workflow=workflow, lfn="/store/data/9.root", block_name="/a/b/C#2", size_bytes=1, events=10, rses=["T2_CH_CERN"]
    )
    second = plan(workflow)
    assert second is not None
    order = WorkUnitClaim.objects.filter(unit__dag=second).order_by("id").values_list("input_file__lfn", flat=True)
    assert list(order) == ["/store/data/9.root", *(f"/store/data/{n}.root" for n in range(4))]
