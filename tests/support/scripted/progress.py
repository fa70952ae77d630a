"""How far requests of the scripted world have come, and ways to bring them further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dags_app.models import WorkUnit
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.work import planner
from requests_app.work.ledger import ledger_of
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


def while_planned(monkeypatch: pytest.MonkeyPatch, request: Request, operation: Callable[..., object]) -> None:
    """The operation comes when what is left of the request has been read and its next round is not written yet."""
    plan = planner.plan

    def later(given: Any) -> Any:
        monkeypatch.setattr(planner, "plan", plan)
        operation(request=Request.objects.get(pk=request.pk))
        return plan(given)

    monkeypatch.setattr(planner, "plan", later)


@once
def started(world: World, events: int = 300) -> tuple[Request, Job]:
    """A generation whose DAG runs: one unit for each 100 events, three at most."""
    request = world.request(documents.generation(events))
    world.cycle()
    assert fresh(request).status == S.ACTIVE
    return request, world.job_of(request)


def run_on(world: World, request: Request, cycles: int = 12, seconds: float = 60) -> RequestStatus:
    """To its end, or until it is held. What must always hold is looked at where its status has become another."""
    looked = ""
    for _ in range(cycles):
        world.cycle()
        if looked != fresh(request).status:
            looked = request.status
            check(world)
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(seconds)
        if request.status in (S.COMPLETED, S.HELD, S.ABORTED, S.FAILED):
            break
    return RequestStatus(request.status)


def all_planned(world: World, request: Request, cycles: int = 8) -> bool:
    """Whether all of its work comes to be planned, while every DAG finishes; what then follows is not looked at."""
    for _ in range(cycles):
        world.cycle()
        planned = WorkUnit.objects.filter(workflow__request=request).exists()
        if planned and not ledger_of(request.workflow).work_left:
            check(world)
            fresh(request)
            return True
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(60)
    return False


def failed(world: World, request: Request, *, done: int) -> None:
    """Its DAG ends with so many more units done and the others failed; then a cycle."""
    job = world.job_of(request)
    for number, unit in enumerate(job.open_nodes):
        if number < done:
            world.schedd.unit_done(job, unit)
        else:
            world.schedd.unit_failed(job, unit)
    world.schedd.end(job, End.FINISHED)
    world.cycle()
    fresh(request)


#: Past its work; what follows is the registration of what was made.
_PAST_WORK = (S.VALIDATING_OUTPUTS, S.VALIDATED_OUTPUTS, S.COMPLETED)


def work_done(world: World, request: Request, cycles: int = 12) -> bool:
    """Whether all of its work comes to be done, while every DAG finishes; how its outputs are then compared is not looked at."""
    for _ in range(cycles):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.cycle()
        world.clock.advance(60)
        if fresh(request).status in _PAST_WORK:
            check(world)
            return not ledger_of(request.workflow).work_left
    return False


REGISTERED = World.effects


def nothing_is_registered(world: World, limit: int = 100) -> None:
    """In the place of ``World.effects``: what is done waits for its registration, which takes a fifth of a world's time."""


def all_done(world: World, request: Request) -> bool:
    """Whether all of its work comes to be done; from now on it is registered."""
    world.patch.setattr(World, "effects", REGISTERED)
    return work_done(world, request)


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
