"""Operations that meet something under way: a release without rescues left, versions that wait, registrations that were
refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from dags_app.models import DAG, DAGKind
from outputs_app.models import DatasetOwner, Effect, EffectState
from outputs_app.services import effect_retry_now
from requests_app.models import Event, Request, RequestStatus
from requests_app.services import (
    request_abort,
    request_complete,
    request_fail,
    request_invalidate,
    request_release,
    request_restart,
)
from requests_app.services.release import Changes, ReleaseMode, release_plan
from requests_app.work.overrides import Overrides
from tests.support.limits import set_limits
from tests.support.scripted import documents
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import fresh, held, started, status, while_planned
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


def cycles(world: World, count: int = 3) -> None:
    for _ in range(count):
        world.cycle()


# --- release


def test_a_rescue_that_is_not_allowed_is_refused_and_not_turned_into_a_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, error_max_rescue_attempts=0)
    request = held(world)
    with pytest.raises(InvalidTransition, match="error_max_rescue_attempts is 0"):
        request_release(request=request, mode=ReleaseMode.RESCUE, **BY)
    assert fresh(request).status == S.HELD
    assert release_plan(request).mode is ReleaseMode.NEXT_ROUND
    once = Changes(overrides=Overrides(error_max_rescue_attempts=1))
    assert request_release(request=request, mode=ReleaseMode.RESCUE, changes=once, **BY).mode is ReleaseMode.RESCUE
    cycles(world)
    kinds = DAG.objects.filter(workflow__request=request).order_by("fence").values_list("kind", flat=True)
    assert list(kinds) == [DAGKind.FRESH, DAGKind.FAILURE_RESCUE]


# --- while a round is planned


def test_a_request_that_is_to_complete_with_what_is_done_while_it_is_planned_runs_no_further_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(documents.generation(300))
    while_planned(monkeypatch, request, partial(request_complete, **BY))
    world.cycle()
    assert fresh(request).complete_early
    cycles(world, 6)
    assert (status(request), world.schedd.jobs) == (S.COMPLETED, [])


@pytest.mark.parametrize("split", [{"files_per_job": 1}, {"lumis_per_job": 3}])
def test_a_request_that_waits_for_a_site_of_its_input_completes_with_what_is_done_when_asked(
    world: World, split: dict[str, int]
) -> None:
    dataset = world.source("Waits", *[30] * 6)
    del world.sources[dataset].locations[f"{dataset}#1"]
    request = world.request(documents.reprocessing(dataset, **split))
    for _ in range(6):
        world.cycle()
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(60)
    assert (status(request), "waits for a site of 3 input files" in request.waiting_for) == (S.QUEUED, True)
    request_complete(request=request, **BY)
    cycles(world, 6)
    assert status(request) is S.COMPLETED, request.waiting_for


# --- versions


def stopping_for_a_restart(world: World) -> tuple[Request, Request]:
    request, _ = started(world)
    world.schedd.removes_late = True
    new = request_restart(request=request, **BY)
    world.cycle()
    assert (fresh(request).status, fresh(new).status) == (S.STOPPING, S.NEW)
    return request, new


def gone(world: World) -> None:
    world.schedd.removes_late = False
    world.schedd.work()
    cycles(world, 4)


def test_a_version_that_was_aborted_before_it_began_leaves_the_old_one_to_be_restarted(world: World) -> None:
    request, unwanted = stopping_for_a_restart(world)
    request_abort(request=unwanted, **BY)
    assert not DatasetOwner.objects.filter(request=unwanted).exists()
    new = request_restart(request=fresh(request), **BY)
    assert new.request_name == f"{request.request_name}_v3"
    gone(world)
    assert (fresh(request).status, fresh(unwanted).status) == (S.FAILED, S.ABORTED)
    assert fresh(new).status == S.ACTIVE
    assert request.superseded_by_request == new.request_name


def test_a_failed_request_whose_next_version_was_aborted_can_be_restarted(world: World) -> None:
    request, unwanted = stopping_for_a_restart(world)
    request_abort(request=unwanted, **BY)
    gone(world)
    assert (fresh(request).status, request.superseded_by_request) == (S.FAILED, "")
    assert request_restart(request=request, **BY).status == S.SUBMITTED


def test_a_fail_after_a_restart_begins_no_next_version(world: World) -> None:
    request, new = stopping_for_a_restart(world)
    request_fail(request=request, **BY)
    gone(world)
    assert (fresh(request).status, fresh(new).status, request.superseded_by_request) == (S.FAILED, S.ABORTED, "")


# --- registrations


def refused(world: World) -> Request:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.observe()
    world.evaluate(request)
    world.rucio.script.arm(Mode.REFUSED)
    world.effects()
    return request


def alerts(request: Request) -> list[tuple[str, str]]:
    rows = Event.objects.filter(request=request, kind__in=("alert", "alert_over")).order_by("id")
    return [(row.kind, row.data["code"]) for row in rows]


def test_a_refused_registration_is_alerted_on_while_the_dag_runs_and_over_when_it_is_retried(world: World) -> None:
    request = refused(world)
    world.evaluate(request)
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, "effect_refused")
    effect_retry_now(effect=Effect.objects.get(request=request, state=EffectState.REFUSED), **BY)
    world.evaluate(request)
    assert fresh(request).alert_code == ""
    assert alerts(request) == [("alert", "effect_refused"), ("alert_over", "effect_refused")]


def test_a_refusal_is_alerted_on_after_the_end_of_the_request_too(world: World) -> None:
    request = held(world)
    request_fail(request=request, **BY)
    for _ in range(3):
        cycles(world)
        world.clock.advance(60)  # what is registered meanwhile has the manifest written again
    request_invalidate(request=fresh(request), **BY)
    world.rucio.script.arm(Mode.REFUSED)
    world.effects()
    world.evaluate(request)
    assert (fresh(request).status, request.alert_code) == (S.FAILED, "effect_refused")
