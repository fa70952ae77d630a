"""Versions of a request and the fate of their outputs, where operations and versions cross each other."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from outputs_app.models import BlockStatus, DatasetState, Effect, EffectKind, EffectState, OutputDataset, ProcessingBlock
from outputs_app.services import effect_retry_now
from requests_app.models import CleanupPolicy, Request, RequestStatus
from requests_app.services import request_fail, request_hold, request_invalidate, request_restart, request_submit
from requests_app.services.invalidation import superseded_take_back
from tests.support.scripted import aftermath
from tests.support.scripted.branching import once
from tests.support.scripted.progress import fresh, held, run_on, started
from tests.support.scripted.world import World
from wms2.conf import conf
from wms2.errors import InvalidTransition

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


def fates(request: Request) -> set[str]:
    return set(OutputDataset.objects.filter(workflow__request=request).values_list("state", flat=True))


@once
def third_version(world: World, first_policy: CleanupPolicy, second_policy: CleanupPolicy) -> tuple[Request, Request, Request]:
    """A first version with outputs, a second that is held and replaced as well, and the third."""
    first = held(world)
    second = request_restart(request=first, cleanup_policy=first_policy, **BY)
    for _ in range(3):
        world.cycle()
    request_hold(request=fresh(second), **BY)
    for _ in range(3):
        world.cycle()
    third = request_restart(request=fresh(second), cleanup_policy=second_policy, **BY)
    return first, second, third


def test_a_version_that_completes_supersedes_all_that_came_before_it(world: World) -> None:
    keep = CleanupPolicy.KEEP_UNTIL_REPLACED
    first, second, third = third_version(world, keep, keep)
    assert run_on(world, third) == S.COMPLETED
    assert fates(first) == fates(second) == {DatasetState.SUPERSEDED}
    assert fates(third) == {DatasetState.ACTIVE}


def test_outputs_are_cleaned_up_as_the_version_after_them_was_told(world: World) -> None:
    first, second, third = third_version(world, CleanupPolicy.IMMEDIATE_CLEANUP, CleanupPolicy.KEEP_UNTIL_REPLACED)
    assert run_on(world, third) == S.COMPLETED
    for _ in range(3):
        world.cycle()
    assert fates(first) == {DatasetState.INVALIDATED}
    assert fates(second) == {DatasetState.SUPERSEDED}
    aftermath.check_at_rest(world)


def test_outputs_of_all_versions_before_are_taken_back_after_the_grace_also_when_one_between_failed(world: World) -> None:
    keep = CleanupPolicy.KEEP_UNTIL_REPLACED
    first, second, third = third_version(world, keep, keep)
    assert run_on(world, third) == S.COMPLETED
    assert fresh(second).status == S.FAILED
    assert superseded_take_back(transaction.atomic) == 0, "not before the grace is over"
    world.clock.advance(conf().superseded_grace_days * 86_400 + 1)
    assert superseded_take_back(transaction.atomic) == 2
    for _ in range(4):
        world.clock.advance(60)
        world.cycle()
    assert fates(first) == fates(second) == {DatasetState.INVALIDATED}
    assert fates(third) == {DatasetState.ACTIVE}
    assert superseded_take_back(transaction.atomic) == 0
    aftermath.check_at_rest(world)


def test_outputs_that_are_asked_back_twice_are_taken_back(world: World) -> None:
    request = held(world)
    request_fail(request=request, **BY)
    first = request_invalidate(request=fresh(request), **BY)
    epoch = fresh(request).epoch
    assert request_invalidate(request=request, **BY) == first
    assert fresh(request).epoch == epoch
    for _ in range(3):
        world.cycle()
    assert fates(request) == {DatasetState.INVALIDATED}
    assert not world.rucio.rules


def test_what_was_to_be_registered_of_outputs_that_are_taken_back_is_not_tried_again(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.observe()
    world.evaluate(request)
    request_hold(request=fresh(request), **BY)
    for _ in range(2):
        world.observe()
        world.evaluate(request)
    request_fail(request=fresh(request), **BY)
    request_invalidate(request=fresh(request), **BY)
    effect = Effect.objects.filter(request=request, kind=EffectKind.RUCIO_FILES)[0]
    with pytest.raises(InvalidTransition, match="taken back"):
        effect_retry_now(effect=effect, **BY)


def test_a_version_that_waits_for_the_old_one_to_fail_is_not_submitted_by_hand(world: World) -> None:
    request, _ = started(world)
    world.schedd.removes_late = True
    new = request_restart(request=request, **BY)
    with pytest.raises(InvalidTransition, match="begins by itself"):
        request_submit(request=new, **BY)
    assert fresh(new).status == S.NEW
    world.schedd.removes_late = False
    for _ in range(4):
        world.cycle()
    assert fresh(request).status == S.FAILED
    assert fresh(new).status == S.ACTIVE


def test_a_registration_that_is_tried_again_brings_the_block_of_a_failed_request_to_its_end(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.observe()
    world.evaluate(request)
    effect = Effect.objects.filter(request=request, kind=EffectKind.RUCIO_FILES).order_by("id")[0]
    Effect.objects.filter(pk=effect.pk).update(state=EffectState.DEAD)
    request_fail(request=fresh(request), **BY)
    world.observe()
    world.evaluate(request)
    world.observe()
    world.evaluate(request)
    assert fresh(request).status == S.FAILED
    effect.refresh_from_db()
    effect_retry_now(effect=effect, **BY)
    assert set(ProcessingBlock.objects.values_list("status", flat=True)) == {BlockStatus.COMPLETE}
    for _ in range(3):
        world.cycle()
        world.clock.advance(60)  # the manifest that was being written when something was registered is written again
    assert set(ProcessingBlock.objects.values_list("status", flat=True)) == {BlockStatus.ARCHIVED}
    aftermath.check(world)
    aftermath.check_at_rest(world)
