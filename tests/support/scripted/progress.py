"""How far requests of the scripted world have come, and ways to bring them further."""

from __future__ import annotations

from requests_app.models import HoldCode, Request, RequestStatus
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.invariants import check
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World

S = RequestStatus
DAY_SECONDS = 86_400.0


def fresh(request: Request) -> Request:
    request.refresh_from_db()
    return request


@once
def started(world: World, events: int = 300) -> tuple[Request, Job]:
    """A generation whose DAG runs: one unit for each 100 events, three at most."""
    request = world.request(documents.generation(events))
    world.cycle()
    assert fresh(request).status == S.ACTIVE
    return request, world.job_of(request)


def run_on(world: World, request: Request, cycles: int = 12) -> RequestStatus:
    for _ in range(cycles):
        world.cycle()
        check(world)
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(60)
        if fresh(request).status in (S.COMPLETED, S.HELD, S.ABORTED, S.FAILED):
            break
    return RequestStatus(request.status)


@once
def completed(world: World, events: int = 300) -> Request:
    """A generation that is complete."""
    request, _ = started(world, events)
    assert run_on(world, request) == S.COMPLETED
    return request


@once
def held(world: World, events: int = 300, failed: tuple[str, ...] = ("mg_000001", "mg_000002")) -> Request:
    """Held over the threshold, one unit done, the others failed."""
    request, job = started(world, events)
    for unit in failed:
        world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    for _ in range(4):
        world.cycle()
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.THRESHOLD)
    return request


def status(request: Request) -> RequestStatus:
    request.refresh_from_db()
    return RequestStatus(request.status)


def cycles(world: World, number: int = 4) -> None:
    for _ in range(number):
        world.cycle()
        check(world)
