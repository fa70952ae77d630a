"""Rounds that rest on what those before measured: rows, sizes, how far a round goes, what a rescue brings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from dags_app.histogram import counted
from dags_app.manifest import Manifest
from dags_app.models import DAG, DAGKind, DAGStatus, SizingDecision, StepMeasurement, WorkUnit, WorkUnitState
from dags_app.payload.contract.step_profile import read_step_profile
from dags_app.planning.sizing import Sizes, sizes_from_json
from dags_app.services.measurements import measurements_add
from dags_app.services.plan import dag_record_rescue
from dags_app.services.units import Settled, units_fail
from requests_app.lease import evaluating
from requests_app.models import Request, RequestStatus, Workflow
from requests_app.selectors.rounds import rounds_of
from requests_app.work import planner, sizing
from requests_app.work.exclusions import bad_input_read
from requests_app.work.planner import round_plan
from requests_app.work.rounds import round_close
from requests_app.work.sizing import measured_of, rescue_sizing
from sites_app.models import Site, SiteRse
from tests.support.limits import set_limits
from tests.support.rows import dag_row, generation_spec, request_row, unit_row, workflow_row

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = planner.conf().model_copy(update={"submit_root": tmp_path})
    monkeypatch.setattr(planner, "conf", lambda: settings)
    for name in ("T1_US_FNAL", "T2_CH_CERN"):
        SiteRse.objects.create(site=Site.objects.create(name=name), rse=name, seen_at="2026-01-01T00:00:00Z")


def job(node: str, **changes: Any) -> dict[str, Any]:
    """A job of 100 events that took 100 s on one core."""
    measured = {
        "node": node, "processes": 1, "threads": 1, "wall_seconds": 100.0, "cpu_seconds": 90.0, "peak_rss_mb": 1000.0,
        "slot_rss_mb": 1000.0, "events_read": 100, "events_written": 100, "bytes_written": {"RAWSIMoutput": 10**8},
    }  # fmt: skip
    return measured | changes


def settled(dag: DAG, index: int, jobs: list[dict[str, Any]], **changes: Any) -> Settled:
    unit = unit_row(dag, index)
    processed = {"events": 100, "lumis": {"1": [[1, 10]]}}
    manifest = {
        "schema": "wms2.manifest/1.2", "request_name": "r", "workflow_id": "w", "dag_id": "d", "unit": unit.name, "fence": 1,
        "site": "s", "rse": "s", "outputs": [], "jobs": [{"node": each["node"], "processed": processed} for each in jobs],
        "metrics": {"steps": {"GenSim": {"processes": 1, "threads": 1, "jobs": jobs}}},
    }  # fmt: skip
    return Settled(unit, Manifest.model_validate(manifest | changes), "x")


def measure(dag: DAG, jobs: int = 8, *, step: str = "GenSim", seconds: float = 100.0, rss: float = 1000.0) -> StepMeasurement:
    """What so many jobs of 100 events have left in the rows."""
    spread = {name: counted([value] * jobs) for name, value in (("job_seconds", seconds), ("rss_mb", rss), ("slot_rss_mb", rss))}
    return StepMeasurement.objects.create(
        round=dag.round, step=step, processes=1, threads=1, jobs=jobs, events_read=100 * jobs, events_written=100 * jobs,
        wall_seconds=seconds * jobs, cpu_seconds=0.9 * seconds * jobs, bytes_written={"RAWSIMoutput": jobs * 10**8},
        histograms=spread | {"seconds_per_event": counted([seconds / 100] * jobs)},
    )  # fmt: skip


def request_for(*, adaptive: bool, events: int = 80_000, **fields: Any) -> Workflow:
    request = request_row(RequestStatus.PLANNING, adaptive=adaptive, **fields)
    return workflow_row(request, generation_spec(request.request_name, events=events))


def plan(workflow: Workflow) -> DAG:
    Request.objects.filter(pk=workflow.request.pk).update(status=RequestStatus.PLANNING)
    with evaluating(workflow.request.pk, owner="test") as evaluation:
        assert evaluation is not None
        dag = round_plan(evaluation)
    assert dag is not None
    return dag


def end(dag: DAG) -> None:
    """All its units are done, and its round is closed."""
    WorkUnit.objects.filter(dag=dag).update(state=WorkUnitState.DONE, manifest_sha256="x" * 64, fence=1)
    number = dag.round.index + 1
    DAG.objects.filter(pk=dag.pk).update(status=DAGStatus.COMPLETED, fence=number, dagman_cluster_id=str(number))
    round_close(round_=dag.round, reason="test", bad_input=bad_input_read(dag.round))


def test_jobs_of_many_units_become_one_row_for_each_way_a_step_ran() -> None:
    dag = dag_row(workflow_row())
    first = [settled(dag, 0, [job("proc_000000"), job("proc_000001", peak_rss_mb=2000.0)])]
    second = [settled(dag, n, [job("proc_000000"), job("proc_000001", processes=2, threads=2)]) for n in range(1, 30)]
    with (
        transaction.atomic(),
        CaptureQueriesContext(
            connection,
        ) as queries,
    ):
        measurements_add(dag=dag, settled=first)
        measurements_add(dag=dag, settled=second)
    assert len(queries) == 4, "one look and one write for each batch"
    alone, split = StepMeasurement.objects.filter(round=dag.round).order_by("processes")
    assert (alone.jobs, split.jobs, alone.lumis_read) == (31, 29, 310)
    assert (alone.wall_seconds, alone.events_read, alone.bytes_written) == (3100.0, 3100, {"RAWSIMoutput": 31 * 10**8})
    (found,) = [each for each in measured_of(dag.workflow) if each.processes == 1]
    assert found.rss_mb.p50 == pytest.approx(1000, rel=0.011)
    with transaction.atomic():
        measurements_add(dag=dag, settled=[settled(dag, 40, [job("proc_000000")], metrics={"steps": 5})])
    assert sum(row.jobs for row in StepMeasurement.objects.all()) == 60, "damaged metrics add nothing, and stop nothing"


def test_an_adaptive_request_begins_with_one_unit_and_sizes_the_rounds_that_follow() -> None:
    workflow = request_for(adaptive=True)
    first = plan(workflow)
    assert (first.total_work_units, first.sizes["profile"]["version"]) == (1, 0)
    end(first)
    measure(first)

    second = plan(workflow)
    planned = second.round.sizing["splitting"]["events_per_job"]
    assert planned > 100, "jobs of 100 s are too short"
    unit = WorkUnit.objects.filter(dag=second).order_by("index").first()
    assert unit is not None
    assert unit.estimated_output_bytes == pytest.approx(unit.events * 10**6), "measured bytes, not hinted ones"
    why = {row.what: row for row in SizingDecision.objects.filter(dag=second)}
    assert (why["events_per_job"].before, why["events_per_job"].chosen) == (100, planned)
    profile = sizes_from_json(second.sizes).profile
    assert (profile.version, profile.steps["GenSim"].processes, profile.steps["GenSim"].threads) == (1, 1, 1)
    assert read_step_profile(Path(second.submit_dir)) == profile
    assert (Path(second.submit_dir) / "sizes.inc").read_text() == f"TASK_1_MEMORY_MB = {second.sizes['memory_mb']['1']}\n"


def test_operators_may_let_steps_have_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, overcommit_max=1.5)
    request = request_row(RequestStatus.PLANNING, adaptive=True)
    spec = generation_spec(request.request_name, events=80_000)
    steps = (replace(spec.steps[0], threads=4),)
    workflow = workflow_row(request, replace(spec, steps=steps, resources=replace(spec.resources, cores=4, memory_mb=8000)))
    first = plan(workflow)
    end(first)
    measure(first)
    StepMeasurement.objects.update(threads=4, cpu_seconds=3 * F("wall_seconds"))

    second = plan(workflow)
    run = sizes_from_json(second.sizes).profile.steps["GenSim"]
    assert (run.processes, run.threads) == (1, 6), "three of four cores were busy"
    more = SizingDecision.objects.get(dag=second, what="threads")
    assert (more.before, more.chosen, more.why) == (4, 6, "75% of the cores are busy")


def test_a_first_round_that_brought_nothing_is_followed_by_another_small_one() -> None:
    workflow = request_for(adaptive=True)
    first = plan(workflow)
    units_fail(units=list(WorkUnit.objects.filter(dag=first)), problem="its site burnt down")
    DAG.objects.filter(pk=first.pk).update(status=DAGStatus.PARTIAL, fence=1, dagman_cluster_id="1")
    round_close(round_=first.round, reason="test", bad_input=bad_input_read(first.round))
    assert plan(workflow).total_work_units == 1


def test_another_request_keeps_its_splitting_and_has_measured_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "MAX_WORK_UNITS_PER_DAG", 3)
    workflow = request_for(adaptive=False)
    first = plan(workflow)
    assert first.total_work_units == 3
    end(first)
    measure(first, rss=2400.0)
    second = plan(workflow)
    assert second.total_work_units == 3
    assert second.round.sizing["splitting"] == {"algorithm": "EventBased", "events_per_job": 100, "events_per_lumi": 10}
    assert second.sizes["memory_mb"] == {"1": pytest.approx(2880, rel=0.02)}


def test_a_round_of_an_adaptive_request_ends_where_its_next_production_step_does() -> None:
    workflow = request_for(
        adaptive=True, events=8000, production_steps=[{"fraction": 0.3, "priority": 10}, {"fraction": 0.95, "priority": 5}]
    )
    first = plan(workflow)
    end(first)
    Request.objects.filter(pk=workflow.request.pk).update(overrides={"events_per_job": 100, "jobs_per_work_unit": 8})
    second = plan(workflow)
    assert second.total_work_units == 2, "0.3 of 10 units, one is done"
    end(second)
    workflow.request.refresh_from_db()
    assert not workflow.request.warnings
    Request.objects.filter(pk=workflow.request.pk).update(production_steps=[{"fraction": 0.42, "priority": 5}])
    third = plan(Workflow.objects.get(pk=workflow.pk))
    assert third.total_work_units == 2
    workflow.request.refresh_from_db()
    assert workflow.request.warnings == [
        "the production step at 42.0% cannot be met with work units of 10.0% of the work: it is taken at 50.0%"
    ]


def test_a_new_version_begins_with_what_the_one_before_measured_of_steps_that_are_the_same() -> None:
    old = request_for(adaptive=True)
    measure(dag_row(old))
    measure(DAG.objects.get(workflow=old), step="Another")
    new = request_for(adaptive=True, previous_version_request=old.request)
    (found,) = measured_of(new)
    assert (found.step, found.round_index, found.jobs) == ("GenSim", -1, 8)
    assert plan(new).total_work_units > 1, "no first round of one unit is needed"
    other = request_for(adaptive=True, previous_version_request=new.request)
    spec = other.spec
    spec["steps"][0]["cmssw_version"] = "CMSSW_15_0_0"
    Workflow.objects.filter(pk=other.pk).update(spec=spec)
    assert measured_of(Workflow.objects.get(pk=other.pk)) == []


def test_a_rescue_brings_fresh_memory_and_another_version_of_the_profile() -> None:
    workflow = request_for(adaptive=True)
    first = plan(workflow)
    measure(first, rss=2300.0)
    sized = rescue_sizing(workflow.request, first)
    assert sized.workflow.generation.events_per_job == 100, "its jobs are cut"
    DAG.objects.filter(pk=first.pk).update(status=DAGStatus.PARTIAL)
    memory = sized.workflow.resources.memory_mb
    sizes = Sizes({1: memory}, sized.profile)
    rescue = dag_record_rescue(
        failed=first, kind=DAGKind.STOP_RESCUE, rescue_file="r", priority=1, sizes=sizes, decisions=sized.decisions
    )
    assert memory == pytest.approx(2760, rel=0.02)
    assert sizes_from_json(rescue.sizes).profile.version == 1
    assert rescue.history.get().detail["sizes"] == rescue.sizes
    decided = rescue.decisions.get(what="memory_mb")
    assert (decided.before, decided.chosen, decided.profile_version) == (2000, memory, 1)
    DAG.objects.filter(pk=rescue.pk).update(status=DAGStatus.PARTIAL)
    again = dag_record_rescue(failed=rescue, kind=DAGKind.STOP_RESCUE, rescue_file="r", priority=1, sizes=sizes)
    assert sizes_from_json(again.sizes).profile.version == 1, "nothing has changed"
    (picture,) = rounds_of(workflow)
    assert [dag.pk for dag in picture.dags] == [first.pk, rescue.pk, again.pk]
    assert picture.steps[0].cpu_efficiency == pytest.approx(0.9)
