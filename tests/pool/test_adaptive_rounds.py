"""An adaptive request on the real stack: rounds that rest on each other, through a stop and the loss of a rescue file."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db.models import Sum

from dags_app.models import DAG, DAGKind, StepMeasurement, WorkUnit, WorkUnitState
from dags_app.payload.contract.step_profile import read_step_profile
from dags_app.planning import writer
from dags_app.planning.sizing import sizes_from_json
from outputs_app.models import OutputFile
from requests_app.models import Request, RequestStatus
from requests_app.selectors.rounds import rounds_of
from requests_app.services import Received, request_hold, request_import, request_pin, request_release, request_stop
from tests.pool import condor
from tests.support.faults import fault
from tests.support.outcomes import assert_completed, ended, status
from tests.support.stack import small_request, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
EVENTS, PER_JOB, PER_UNIT = 140, 10, 20
#: One unit at a time, so that another has not begun when the first is stopped.
QUICK = {"sizing_min_jobs": 2, "dag_max_merge_groups": 1, "block_max_files": 2}


def runs(request: Request, round_index: int) -> bool:
    """A DAG of the round is in the queue."""
    return DAG.objects.filter(workflow__request=request, round__index=round_index, status="running").exists() or ended(request)


def processing_memory(dag: DAG) -> set[int]:
    """What the processing jobs of a submission asked for."""
    ads = condor.history(f'WMS2_DagID == "{dag.directory_id}" && WMS2_Role == "processing" && WMS2_Fence == {dag.fence}')
    return {int(ad["RequestMemory"]) for ad in ads}


@fault(
    "an adaptive request is stopped, and later loses its rescue file",
    done="a clean stop in the second of its rounds; in the third its rescue file vanishes while it is held",
    spec="spec 5.3, 6.2.1; DD-12",
    afterwards="the stopped round goes on with measured sizes; a unit without a rescue file is ABANDONED and planned anew;"
    " COMPLETED, each event once; blocks of two units each, over five rounds, with one tape rule each",
)
@pytest.mark.deep(
    "tests/requests_app/work/test_adaptive.py::test_an_adaptive_request_begins_with_one_unit_and_sizes_the_rounds_that_follow"
)
def test_rounds_go_on_from_what_those_before_measured_and_lose_nothing(ready: None) -> None:
    request = request_import(
        document=small_request(EVENTS, PER_JOB, steps=3), request_name=None, actor="tester", asked=Received(adaptive=True)
    )
    pins = {"events_per_job": PER_JOB, "jobs_per_work_unit": PER_UNIT // PER_JOB, "work_units_per_round": 2}
    request_pin(request=request, actor="tester", reason="three small rounds", **pins)
    reported = {"request": request, "actor": "tester", "reason": "test"}
    with worker(**QUICK) as running:
        running.wait(lambda: runs(request, 1), seconds=240)
        request.refresh_from_db()
        request_stop(**reported)
        running.wait(lambda: runs(request, 2), seconds=300)
        request.refresh_from_db()
        request_hold(**reported)
        running.wait(lambda: status(request) in (RequestStatus.HELD, RequestStatus.COMPLETED), seconds=120)
        running.stop()
        request.refresh_from_db()
        assert request.status == RequestStatus.HELD, "or the pool is too fast for this test"
        last = DAG.objects.filter(workflow__request=request).latest("created_at")
        request_release(**reported)
        for rescue in Path(last.submit_dir).glob("workflow.dag.rescue*"):
            rescue.unlink()
        running.start()
        running.wait(lambda: ended(request), seconds=300)

    states = list(WorkUnit.objects.filter(round=last.round).values_list("state", flat=True))
    assert len(states) == 2
    assert set(states) <= {WorkUnitState.FAILED, WorkUnitState.ABANDONED}, "nobody knows of a failure in one that has not begun"
    assert WorkUnitState.ABANDONED in states
    assert_completed(request, abandoned=2 * PER_UNIT, blocks_each=-(-EVENTS // PER_UNIT // 2))
    made = OutputFile.objects.filter(dataset__workflow=request.workflow).values("dataset").annotate(events=Sum("events"))
    assert {row["events"] for row in made} == {EVENTS}

    first, second, third, *later = rounds_of(request.workflow)
    assert len(later) >= 2
    assert [len(each.row.work_units.all()) for each in (first, second, third)] == [1, 2, 2]
    assert [dag.kind for dag in second.dags] == [DAGKind.FRESH, DAGKind.STOP_RESCUE]
    jobs = StepMeasurement.objects.filter(round__workflow=request.workflow).values("step").annotate(total=Sum("jobs"))
    assert {row["total"] for row in jobs} == {EVENTS // PER_JOB}, "each job counts once"
    measured = {(row.dag_id, row.what): row.measured for row in (*first.decisions, *second.decisions)}
    assert measured[first.dags[0].pk, "memory_mb"] is None
    assert all(measured[dag.pk, "memory_mb"] for dag in second.dags), "both say why"
    rescue = second.dags[-1]
    sizes = sizes_from_json(rescue.sizes)
    assert sizes.profile.steps.keys() == {"GenSim", "DigiRaw", "Reco"}
    assert read_step_profile(Path(rescue.submit_dir)) == sizes.profile
    assert writer.changed_files(Path(rescue.submit_dir)) == []
    for dag in (first.dags[0], rescue):
        asked = processing_memory(dag)
        assert asked == {sizes_from_json(dag.sizes).memory_mb[1]}, "HTCondor reads what the submission brought"
