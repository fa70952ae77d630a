"""``TotalInputLumis`` in ReqMgr2 are the lumis that DBS has in the end: Unified closes out by them, and never what has 0."""

from __future__ import annotations

from typing import Any

import pytest

from outputs_app.models import Effect, EffectKind
from requests_app.models import Request, RequestStatus
from requests_app.reqmgr2.reports import report_round
from tests.support.reqmgr2_world import Outside, taken
from tests.support.scripted import documents
from tests.support.scripted.catalogues import Source, SourceFile
from tests.support.scripted.progress import fresh, run_on
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
HERE = "tests/requests_app/reqmgr2/test_totals.py"
LONG = pytest.mark.deep(f"{HERE}::test_of_a_generation_those_of_all_its_jobs")
LONG_INPUT = pytest.mark.deep(f"{HERE}::test_of_an_input_those_that_are_wanted_of_it")


def lumis_in_dbs(world: World) -> int:
    """Of the dataset that has most."""
    held: dict[str, set[tuple[int, int]]] = {}
    for block in world.dbs.registered.values():
        for file in block.files.values():
            pairs = {(run, lumi) for run, lumis in file.lumis.items() for lumi, _ in lumis}
            held.setdefault(block.dataset, set()).update(pairs)
    return max(len(pairs) for pairs in held.values())


def closed_out(world: World, outside: Outside, request: Request) -> dict[str, Any]:
    """Its document, once it is completed and Unified has closed it out."""
    for _ in range(4):  # with rounds and rescues it takes more than one run
        if run_on(world, request) == S.COMPLETED:
            break
    assert fresh(request).status == S.COMPLETED, (request.status, request.hold_reason)
    world.effects()
    outside.habits(close_seconds=0.0)
    outside.status(request.request_name)
    return outside.simulators.request(request.request_name)


def generated(events: int, **step: Any) -> dict[str, Any]:
    document = documents.generation(events)
    return {**document, "Step1": {**document["Step1"], **step}}


@pytest.mark.parametrize(
    ("document", "lumis"),
    [
        (generated(300), 30),
        pytest.param(generated(1234, EventsPerJob=130, EventsPerLumi=30), 42, marks=LONG),  # 120 a job; several rounds
        (generated(250, EventsPerJob=100, EventsPerLumi=1000), 3),  # a lumi is a job
        pytest.param(generated(40, EventsPerJob=100, EventsPerLumi=100), 1, marks=LONG),
    ],
)
def test_of_a_generation_those_of_all_its_jobs(world: World, outside: Outside, document: dict[str, Any], lumis: int) -> None:
    found = closed_out(world, outside, taken(outside.stage(document=document)))
    assert (found["TotalInputLumis"], lumis_in_dbs(world)) == (lumis, lumis)
    assert found["RequestStatus"] == "closed-out"


@pytest.mark.parametrize(
    "split",
    [
        {"events_per_job": 100},
        {"lumis_per_job": 15},
        pytest.param({"files_per_job": 3}, marks=LONG_INPUT),
        pytest.param({"SplittingAlgo": "EventAwareLumiBased", "EventsPerJob": 150}, marks=LONG_INPUT),
        pytest.param({"files_per_job": 1, "LumiList": {"1": [[3, 12], [25, 27]]}}, marks=LONG_INPUT),
        pytest.param({"lumis_per_job": 7, "LumiList": {"1": [[3, 12], [25, 27]]}}, marks=LONG_INPUT),
        pytest.param({"files_per_job": 1, "RunWhitelist": [1]}, marks=LONG_INPUT),
    ],
    ids=str,
)
def test_of_an_input_those_that_are_wanted_of_it(world: World, outside: Outside, split: dict[str, Any]) -> None:
    dataset = world.source("Totals", 100, 50, 0, 120)
    other = SourceFile("/store/data/Totals/run2.root", 10, 0, held=((2, 1),))
    if "events_per_job" not in split:
        block = next(iter(world.sources[dataset].blocks.values()))
        block[1:] = [*block[1:], other]
    found = closed_out(world, outside, taken(outside.stage(document=documents.reprocessing(dataset, **split))))
    assert found["TotalInputLumis"] == lumis_in_dbs(world) > 0
    assert found["RequestStatus"] == "closed-out"


@LONG_INPUT
def test_a_lumi_that_lies_in_two_files_counts_once(world: World, outside: Outside) -> None:
    dataset = "/Shared/Era-v1/RAW"
    files = [SourceFile(f"/store/data/Shared/{n}.root", 20, 0, held=((1, 1), (1, 2 + n))) for n in range(3)]
    world.sources[dataset] = Source({f"{dataset}#0": files}, {f"{dataset}#0": ("T1_US_FNAL_Disk",)})
    found = closed_out(world, outside, taken(outside.stage(document=documents.reprocessing(dataset, files_per_job=1))))
    assert found["TotalInputLumis"] == lumis_in_dbs(world) == 4


@LONG
def test_failed_units_and_what_is_made_in_their_place_change_nothing(world: World, outside: Outside) -> None:
    request = taken(outside.stage(events=900))
    world.cycle()
    job = world.job_of(request)
    world.schedd.unit_failed(job, "mg_000001")
    world.schedd.end(job, End.FINISHED)
    found = closed_out(world, outside, request)
    assert Effect.objects.filter(kind=EffectKind.REQMGR2_TOTALS).count() > 2
    assert found["TotalInputLumis"] == lumis_in_dbs(world) == 90


@LONG_INPUT
def test_an_input_that_grows_is_reported_as_it_grows(world: World, outside: Outside) -> None:
    dataset = world.source("Growing", 100)
    document = documents.reprocessing(dataset, files_per_job=1, OpenRunningTimeout=7200)
    request = taken(outside.stage(document=document))
    world.cycle()
    world.effects()
    assert outside.simulators.request(request.request_name)["TotalInputLumis"] == 10
    block = f"{dataset}#1"
    world.sources[dataset].blocks[block] = [SourceFile("/store/data/Growing/new.root", 50, 100)]
    world.sources[dataset].locations[block] = ("T2_CH_CERN",)
    for _ in range(8):
        world.clock.advance(1800)
        run_on(world, request, 2)
    found = closed_out(world, outside, request)
    assert (found["TotalInputLumis"], found["TotalInputFiles"], found["TotalInputEvents"]) == (15, 2, 150)
    assert lumis_in_dbs(world) == 15


@pytest.mark.parametrize("there", [0, 40])
def test_what_the_work_queue_has_reported_before_is_not_added_again(world: World, outside: Outside, there: int) -> None:
    """And what turns out to be less, as with lumis of more events later, is taken off unless the queue has added some."""
    name = outside.stage()
    request = taken(name)
    queue = {"total_jobs": 2, "input_lumis": there, "input_events": 200, "input_num_files": 0}
    outside.simulators.reqmgr2("PUT", f"request/{name}", queue)
    world.cycle()
    world.effects()
    found = outside.simulators.request(name)
    assert (found["TotalEstimatedJobs"], found["TotalInputLumis"], found["TotalInputEvents"]) == (3, there or 30, 300)
    report_round(fresh(request), 1, 0, {"input_lumis": 20, "input_events": 300, "input_num_files": 0}, last=False)
    world.effects()
    assert outside.simulators.request(name)["TotalInputLumis"] == (there or 20)
