"""Time limits that know progress: extended while work advances, each time by half as much, then a warning, then a person."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.models import DAG
from requests_app.lifecycle.timeouts import DISPATCH_SECONDS, MOST_EXTENSIONS, more_seconds
from requests_app.models import Event, Request, RequestStatus, RequestTransition
from tests.support.scripted.progress import fresh, started
from tests.support.scripted.world import World
from wms2.conf import conf

S = RequestStatus


@given(st.floats(1, 1e7), st.lists(st.integers(0, 100), max_size=30))
def test_more_time_is_given_only_for_more_work_and_less_each_time(base: float, seen: list[int]) -> None:
    extensions: list[int] = []
    given_seconds = []
    for progress in seen:
        seconds = more_seconds(base, extensions, progress)
        assert (seconds > 0) == (len(extensions) < MOST_EXTENSIONS and progress > (extensions[-1] if extensions else 0))
        if seconds:
            extensions.append(progress)
            given_seconds.append(seconds)
    assert sum(given_seconds) < 2 * base
    assert given_seconds == sorted(given_seconds, reverse=True)


def later(world: World, request: Request, seconds: float) -> None:
    world.clock.advance(seconds + 60)
    world.evaluate(request)


def said(request: Request) -> list[str]:
    here = RequestTransition.objects.filter(request=request, from_status=S.ACTIVE, to_status=S.ACTIVE).order_by("id")
    return ["warned" if row.evidence["warned"] else "extended" for row in here]


@pytest.mark.django_db(transaction=True)
def test_a_request_that_advances_gets_more_time_and_is_reported_once_it_stops_advancing(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    world.cycle()
    later(world, request, conf().limits.timeout_active_seconds)
    assert (said(request), fresh(request).alert_code) == (["extended"], "")
    world.schedd.unit_done(job, "mg_000001")
    world.cycle()
    later(world, request, conf().limits.timeout_active_seconds)
    assert (said(request), fresh(request).alert_code) == (["extended", "extended"], "")
    later(world, request, conf().limits.timeout_active_seconds / 2)
    assert (said(request), fresh(request).alert_code) == (["extended", "extended", "warned"], "")
    world.clock.advance(conf().limits.timeout_active_seconds / 2**MOST_EXTENSIONS + 60)
    for _ in range(2):
        world.evaluate(request)
    assert (said(request), fresh(request).alert_code) == (["extended", "extended", "warned"], "slow_active")
    assert fresh(request).status == S.ACTIVE
    kinds = Event.objects.filter(request=request, kind__startswith="deadline").order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["deadline.extended", "deadline.extended", "deadline.warned"]


@pytest.mark.django_db(transaction=True)
def test_without_any_progress_a_person_is_told_at_once(world: World) -> None:
    request, _ = started(world)
    world.cycle()
    later(world, request, conf().limits.timeout_active_seconds)
    assert (said(request), fresh(request).alert_code) == ([], "slow_active")


@pytest.mark.django_db(transaction=True)
def test_a_dag_of_which_no_job_begins_is_told_until_one_has(world: World) -> None:
    request, job = started(world)
    DAG.objects.update(nodes_running=0, nodes_idle=3, began_at=None)
    later(world, request, DISPATCH_SECONDS)
    assert fresh(request).alert_code == "slow_dispatch"
    world.schedd.unit_done(job, "mg_000000")
    world.cycle()
    world.evaluate(request)
    assert fresh(request).alert_code == ""


@pytest.mark.django_db(transaction=True)
def test_the_limit_counts_from_the_first_job_on(world: World) -> None:
    request, job = started(world)
    DAG.objects.update(nodes_running=0, began_at=None)
    later(world, request, conf().limits.timeout_active_seconds)
    assert fresh(request).alert_code == "slow_dispatch", "it only waits"
    world.schedd.unit_done(job, "mg_000000")
    world.cycle()
    world.evaluate(request)
    assert (said(request), fresh(request).alert_code) == ([], "")
    later(world, request, conf().limits.timeout_active_seconds)
    assert said(request) == ["extended"]
