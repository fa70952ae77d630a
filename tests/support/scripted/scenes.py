"""Where lives begin: worlds in which something has happened already, so that each operation soon finds what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dags_app.services.lost_queue import schedd_confirm_lost
from requests_app.models import CleanupPolicy, HoldCode, Request, RequestStatus
from requests_app.services import StopMode, request_restart, request_stop
from sites_app.models import Schedd
from tests.support.scripted import documents, losses
from tests.support.scripted.progress import failed, fresh
from tests.support.scripted.schedd import OTHER, End
from tests.support.scripted.world import World

S = RequestStatus
BY: dict[str, Any] = {"actor": "op", "reason": "to begin with"}


def running(world: World) -> None:
    """A generation and a reprocessing, whose DAGs run."""
    world.request(documents.generation(400))
    world.request(documents.reprocessing(world.source("Source0", 250, 90, 0), events_per_job=100))
    world.cycle()


def over_threshold(world: World) -> None:
    """Held, one unit done, the others failed; beside it one that runs."""
    failed(world, _reprocessing(world), done=1)
    world.request(documents.generation(250))
    world.cycle()


def used_up(world: World) -> None:
    """Held, its one rescue used up."""
    request = _reprocessing(world)
    failed(world, request, done=2)
    failed(world, request, done=0)
    assert request.status == S.HELD, request.status


def draining(world: World) -> None:
    """A DAG that drains, one unit done and registered."""
    request = _generation(world, 300)
    job = world.job_of(request)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.cycle()
    request_stop(request=fresh(request), mode=StopMode.DRAIN, **BY)
    world.cycle()


def replaced(world: World) -> None:
    """A request that was restarted when a part of it was registered, and its next version, which runs."""
    _restarted(world, CleanupPolicy.KEEP_UNTIL_REPLACED)


def replaced_and_cleaned(world: World) -> None:
    """The same, the old outputs to be taken back when the new version is complete."""
    _restarted(world, CleanupPolicy.IMMEDIATE_CLEANUP)


def completed(world: World) -> None:
    """One that is complete, and one that runs."""
    request = _generation(world, 100)
    for _ in range(8):
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.cycle()
        world.clock.advance(60)
    assert fresh(request).status == S.COMPLETED, request.status
    running(world)


def queue_lost(world: World) -> None:
    """A DAG suspected lost with its queue, one unit done."""
    request = _generation(world, 300)
    job = world.job_of(request)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.schedd.lose_queue()
    world.cycle()
    world.clock.advance(losses.WINDOW)
    world.cycle()
    assert fresh(request).alert_code == "queue_suspected", request.waiting_for


def given_up(world: World) -> None:
    """Held, its DAG given up with a schedd that is silent; it runs on unseen."""
    request = _reprocessing(world)
    _generation(world, 100)
    world.schedd.silent = True
    world.cycle()
    world.clock.advance(losses.WINDOW)
    schedd_confirm_lost(schedd=Schedd.objects.exclude(name=OTHER).get(), **BY)
    world.cycle()
    assert fresh(request).hold_code == HoldCode.QUEUE_LOST, request.hold_reason


SCENES: Mapping[str, Callable[[World], None]] = {
    scene.__name__: scene
    for scene in (
        running, over_threshold, used_up, draining, replaced, replaced_and_cleaned, completed, queue_lost, given_up,
    )
}  # fmt: skip


def _generation(world: World, events: int) -> Request:
    request = world.request(documents.generation(events))
    world.cycle()
    return fresh(request)


def _reprocessing(world: World) -> Request:
    dataset = world.source(f"Source{len(world.sources)}", 90, 90, 90, 90)
    request = world.request(documents.reprocessing(dataset, files_per_job=1))
    world.cycle()
    return fresh(request)


def _restarted(world: World, policy: CleanupPolicy) -> None:
    request = _generation(world, 300)
    job = world.job_of(request)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.cycle()
    request_restart(request=fresh(request), cleanup_policy=policy, **BY)
    for _ in range(3):
        world.cycle()
    assert fresh(request).status == S.FAILED, request.status
