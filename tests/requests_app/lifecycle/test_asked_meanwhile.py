"""What operators ask while a worker evaluates the request, and no status changes by it: neither is done over the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dags_app.models import DAG
from requests_app.lifecycle import finish, stopping
from requests_app.models import Request, RequestStatus
from requests_app.services import request_abort, request_complete, request_set_priority, request_set_steps, request_stop
from requests_app.work import planner
from tests.support.scripted import documents
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import failed, fresh, run_on, started
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY = {"actor": "olga", "reason": "decided meanwhile"}


def asking(patch: pytest.MonkeyPatch, module: Any, name: str, ask: Callable[[], object]) -> None:
    """What is asked once, in the middle of the evaluation, right before ``name`` does its part."""
    does, waiting = getattr(module, name), [ask]

    def one(*args: Any, **kwargs: Any) -> Any:
        if waiting:
            waiting.pop()()
        return does(*args, **kwargs)

    patch.setattr(module, name, one)


def anew(request: Request) -> Request:
    """Not the row that the evaluation has read."""
    return Request.objects.get(pk=request.pk)


def test_an_abort_while_the_end_of_a_stop_is_looked_for_stays_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DAG aborted itself: a stop to go on becomes one to hold, and one for good stays what it is."""
    request, job = started(world)
    world.schedd.end(job, End.ABORTED)
    world.observe()
    request_stop(request=anew(request), **BY)
    asking(monkeypatch, stopping, "dag_outcome", lambda: request_abort(request=anew(request), **BY))
    for _ in range(3):
        world.cycle()
    assert (fresh(request).status, request.hold_code) == (S.ABORTED, ""), request.hold_reason
    check(world)


def test_nothing_is_planned_of_a_request_that_is_to_complete_early(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = world.request(documents.generation(300))
    asking(monkeypatch, planner, "plan", lambda: request_complete(request=anew(request), **BY))
    assert run_on(world, request) is S.COMPLETED
    assert not DAG.objects.exists()


def test_a_request_that_is_to_complete_early_is_not_held_over_what_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = started(world)
    asking(monkeypatch, finish, "failure_summary", lambda: request_complete(request=anew(request), **BY))
    failed(world, request, done=1)
    assert run_on(world, request) is S.COMPLETED, request.hold_reason


def test_a_priority_that_is_set_while_a_round_ends_is_not_replaced_by_that_of_a_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(documents.generation(400))
    request_set_steps(request=anew(request), steps=[{"fraction": 0.5, "priority": 200}], **BY)
    world.cycle()

    def ask() -> None:
        request_set_steps(request=anew(request), steps=[], **BY)
        request_set_priority(request=anew(request), priority=300_000, **BY)

    asking(monkeypatch, finish, "check_input", ask)
    assert run_on(world, request) is S.COMPLETED
    assert request.priority == 300_000
