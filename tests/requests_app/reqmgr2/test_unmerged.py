"""Requests whose unmerged files MSUnmerged may delete are alerted on, from before their submission until they are protected."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from requests_app.models import EvaluationLease, Request, RequestStatus
from requests_app.work.spec import spec_of
from tests.support.reqmgr2_world import Outside, taken
from tests.support.scripted import documents
from tests.support.scripted.progress import cycles, fresh
from tests.support.scripted.world import World
from wms2.adapters import factory
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
ALERT = "unmerged_unprotected"


@pytest.fixture(autouse=True)
def asks_wmstats(world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_WMSTATS_URL", f"{outside.simulators.url}/wmstatsserver/data")
    conf.cache_clear()
    factory.wmstats.cache_clear()
    outside.stage("assigned", Team="production", OutputModulesLFNBases=["/store/unmerged/Other/Primary/AOD/Theirs-v1"])


def assigned(outside: Outside, request: Request, status: str | None = None) -> None:
    """ReqMgr2 names the directories, as it does from the assignment on."""
    spec = spec_of(request.workflow)
    bases = [base for step in spec.steps for base in step.unmerged_lfn_bases]
    document = outside.simulators.request(request.request_name)
    outside.simulators.application.reqmgr2.store.put(
        {**document, "OutputModulesLFNBases": bases, "RequestStatus": status or document["RequestStatus"]}
    )


def test_a_request_of_a_document_is_alerted_on_and_runs(world: World) -> None:
    request = world.request(documents.generation(300))
    cycles(world, 2)
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, ALERT)
    due_at = EvaluationLease.objects.get(request=request).due_at
    assert due_at is not None and due_at <= world.clock.now() + timedelta(hours=1), "nothing wakes it when that ends"


def test_one_that_reqmgr2_has_as_active_is_protected_until_it_ends_there(world: World, outside: Outside) -> None:
    request = taken(outside.stage())
    world.evaluate(request, steps=1)
    assigned(outside, fresh(request))
    cycles(world, 2)
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, "")
    assigned(outside, request, "announced")
    world.cycle()
    assert fresh(request).alert_code == "", "it was asked a moment ago"
    world.clock.advance(301)
    world.evaluate(request)
    assert fresh(request).alert_code == ALERT
    assigned(outside, request, "running-open")
    world.clock.advance(301)
    world.evaluate(request)
    assert fresh(request).alert_code == ""


@pytest.mark.parametrize("answer", [lambda: 1 / 0, list, lambda: [None]], ids=["error", "empty", "no names"])
def test_a_wmstats_that_does_not_answer_stops_nothing(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any]
) -> None:
    """Of an empty list MSUnmerged deletes nothing either."""
    monkeypatch.setattr(outside.simulators.application.reqmgr2, "protected_lfns", answer)
    request = world.request(documents.generation(300))
    cycles(world, 2)
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, "")


def test_a_next_version_is_alerted_on_only_after_a_day(world: World) -> None:
    first = world.request(documents.generation(300))
    request = world.request(documents.generation(300))
    Request.objects.filter(pk=request.pk).update(previous_version_request=first)
    cycles(world, 2)
    assert (fresh(request).status, request.alert_code) == (S.ACTIVE, "")
    world.clock.advance(86_401)
    world.evaluate(request)
    assert fresh(request).alert_code == ALERT
