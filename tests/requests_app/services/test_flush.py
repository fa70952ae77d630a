"""What fills no work unit waits while the input may grow; a flush plans it, and asks DBS no more."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from dags_app.models import WorkUnit
from requests_app.models import Request, RequestStatus
from requests_app.services import request_flush, request_hold, request_release
from requests_app.services.derive import flush_preview, flush_refused
from requests_app.work.ledger import ledger_of
from tests.support.scripted import documents
from tests.support.scripted.catalogues import SourceFile
from tests.support.scripted.progress import fresh, status, while_planned
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "the run is over"}
WORLD = {"JOBS_PER_WORK_UNIT": "3", "INPUT_REREAD_SECONDS": "300"}
OPEN_SECONDS = 3000


def grow(world: World, request: Request, number: int) -> None:
    """So many files more, a lumi each, in the one block."""
    source = world.sources[request.input_dataset]
    ((name, files),) = source.blocks.items()
    have = len(files)
    files += [SourceFile(f"{name}/{have + n:03d}.root", 100, 1, ((1, 1000 + have + n),)) for n in range(number)]


def ask(world: World, split: dict[str, int], files: int) -> Request:
    dataset = world.source("Grows", 100)
    request = world.request(documents.reprocessing(dataset, OpenRunningTimeout=OPEN_SECONDS, **split))
    grow(world, request, files - 1)
    return request


def cycles(world: World, number: int, seconds: float = 60) -> None:
    for _ in range(number):
        world.cycle()
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(seconds)


def sizes(request: Request) -> list[int]:
    return list(WorkUnit.objects.filter(workflow__request=request).order_by("id").values_list("jobs", flat=True))


@pytest.mark.parametrize("split", [{"files_per_job": 1}, {"events_per_job": 100}])
def test_files_wait_until_they_fill_a_work_unit_and_a_flush_plans_the_rest(world: World, split: dict[str, int]) -> None:
    request = ask(world, split, files=5)
    cycles(world, 4)
    assert (sizes(request), status(request)) == ([3], S.QUEUED)
    assert "new files" in request.last_error
    grow(world, request, 2)  # four wait by now
    cycles(world, 8)
    assert sizes(request) == [3, 3]
    assert ledger_of(fresh(request).workflow).left_files == 1
    reported = flush_preview(request)
    assert reported[1].startswith("1 work unit is planned next")
    assert reported[2].startswith("mg_000000: 1 job, 100 events, at ")
    request_flush(request=request, **BY)
    assert fresh(request).flush
    grow(world, request, 3)
    asked = dict(world.dbs.script.answered)
    cycles(world, 8, seconds=400)
    assert sizes(request) == [3, 3, 1]
    assert (status(request), request.flush) == (S.COMPLETED, False)
    assert not [call for call in world.dbs.script.answered.keys() - asked.keys() if call[0] in ("blocks", "files")]
    with pytest.raises(InvalidTransition):
        request_flush(request=request, **BY)


def test_the_end_of_the_time_plans_what_waited(world: World) -> None:
    request = ask(world, {"lumis_per_job": 10}, files=2)
    cycles(world, 4)
    assert (sizes(request), status(request)) == ([], S.QUEUED)
    cycles(world, 20, seconds=300)
    assert sizes(request)[-1] < 3
    assert status(request) is S.COMPLETED


def test_a_flush_of_a_held_request_counts_once_it_is_released(world: World) -> None:
    request = ask(world, {"files_per_job": 1}, files=2)
    cycles(world, 3)
    request_hold(request=fresh(request), **BY)
    request_flush(request=request, **BY)
    request_flush(request=request, **BY)  # asked again, it is so
    cycles(world, 3)
    assert (status(request), request.flush) == (S.HELD, True)
    request_release(request=request, **BY)
    cycles(world, 3)
    assert (sizes(request), fresh(request).flush) == ([2], False)


def test_a_flush_while_it_is_planned_has_the_rest_planned_and_does_not_hold_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ask(world, {"files_per_job": 1}, files=2)
    while_planned(monkeypatch, request, partial(request_flush, **BY))
    cycles(world, 3)
    assert (sizes(request), fresh(request).hold_reason) == ([2], "")


def test_there_is_nothing_to_flush_where_no_input_grows(world: World) -> None:
    request = world.request(documents.generation(100))
    world.cycle()
    assert "can be flushed once its input is read" in flush_refused(fresh(request))
    closed = world.request(documents.reprocessing(world.source("Closed", 10), files_per_job=1))
    world.cycle()
    assert "not open" in flush_refused(fresh(closed))
    assert not flush_preview(closed)
