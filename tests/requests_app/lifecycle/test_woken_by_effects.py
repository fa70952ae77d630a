"""A request whose units are all accounted is looked at only when it is woken, and ends all the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outputs_app.models import OPEN_EFFECT, Effect, EffectState
from outputs_app.services import effect_retry_now
from requests_app.models import Request, RequestStatus
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import fresh
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.models import Wake
from wms2.runtime import clock

pytestmark = pytest.mark.django_db(transaction=True)


@once
def owing(world: World) -> Request:
    """All that is left of it is to be registered."""
    request = world.request(documents.generation(300))
    world.cycle()
    world.schedd.end(world.job_of(request), End.FINISHED)
    world.observe()
    world.evaluate(request)
    assert fresh(request).waiting_for.endswith("registrations in DBS and Rucio")
    Wake.objects.all().delete()
    return request


def live_woken(world: World, request: Request, *, effects: int) -> int:
    """Effects run, few at a time; the request is evaluated when it was woken. Returns how often that was."""
    evaluations = 0
    for _ in range(200):
        world.effects(limit=effects)
        if Wake.objects.filter(request_id=request.pk).exists():
            Wake.objects.all().delete()
            world.evaluate(request)
            evaluations += 1
        if fresh(request).status == RequestStatus.COMPLETED:
            break
        world.clock.advance(60)
    return evaluations


@pytest.mark.parametrize("effects", [1, 100])
def test_the_last_effects_bring_a_request_to_its_end(world: World, effects: int) -> None:
    request = owing(world)
    evaluations = live_woken(world, request, effects=effects)
    assert fresh(request).status == RequestStatus.COMPLETED
    assert evaluations < Effect.objects.count() / 2, "not every effect is something to look at"


@pytest.mark.parametrize("service", ["dbs", "rucio"])
def test_services_that_are_away_for_a_while_are_told_and_keep_it_from_nothing(world: World, service: str) -> None:
    request = owing(world)
    world.scripts[service].arm(Mode.DOWN, 3)
    live_woken(world, request, effects=100)
    assert fresh(request).status == RequestStatus.COMPLETED


def test_a_registration_that_was_given_up_is_alerted_on_and_its_retry_ends_the_request(world: World) -> None:
    request = owing(world)
    world.dbs.script.arm(Mode.DOWN, 5000)
    live_woken(world, request, effects=100)
    assert fresh(request).alert_code == "effect_dead"
    world.heal()
    Effect.objects.filter(state=EffectState.DEAD).update(next_attempt_at=clock.now() - timedelta(seconds=1))
    for effect in Effect.objects.filter(state__in=OPEN_EFFECT, last_error__gt=""):
        effect_retry_now(effect=effect, actor="olga", reason="DBS is back")
    live_woken(world, request, effects=100)
    assert (fresh(request).status, fresh(request).alert_code) == (RequestStatus.COMPLETED, "")
