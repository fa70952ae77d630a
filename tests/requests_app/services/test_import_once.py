"""What a document comes to is found out once: the life cycle asks again what import could not know, or what may have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from rest_framework.test import APIClient

from requests_app import intake
from requests_app.models import Request, RequestStatus, Workflow
from requests_app.services import request_abort, request_hold, request_import, request_release, request_submit
from tests.support.rows import request_row
from tests.support.scripted import documents
from tests.support.scripted.faults import Mode
from tests.support.scripted.world import World
from wms2.identities.grants import OPERATORS

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}
CONFIGURATIONS = 2  # of the document: one for each of its steps


@pytest.fixture(name="world")
def _world(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(world_root, monkeypatch)
    world.furnish()
    return world


@pytest.fixture(name="parsed")
def _parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names under which documents were parsed."""
    names: list[str] = []

    def parse(*args: Any, **more: Any) -> intake.Draft:
        draft = real(*args, **more)
        names.append(draft.spec.request_name)
        return draft

    real = intake.parse
    monkeypatch.setattr(intake, "parse", parse)
    return names


def operator() -> APIClient:
    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    client = APIClient()
    client.force_authenticate(user)
    return client


def post(document: dict[str, Any], **more: Any) -> Request:
    response = operator().post("/api/v1/requests", {"document": document, **more}, format="json")
    assert response.status_code == 201, response.content
    return Request.objects.get(request_name=response.json()["request_name"])


def fresh(request: Request) -> Request:
    request.refresh_from_db()
    return request


def test_from_rest_to_queued_the_document_is_parsed_once_and_each_configuration_asked_for_once(
    world: World, parsed: list[str]
) -> None:
    request = post(documents.generation(300))
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED
    assert world.configcache.script.calls == CONFIGURATIONS
    assert parsed == [request.request_name]
    workflow = Workflow.objects.get(request=request)
    assert workflow.psets == {"Gen": "process = 1\n", "Reco": "process = 2\n"}
    assert workflow.spec["steps"][0]["pset_hash"] == "a" * 32
    assert workflow.spec["request_name"] == request.request_name
    assert request.prepared is None, "the workflow has it now"


def test_a_service_that_is_silent_at_first_does_not_make_the_life_cycle_ask_again(world: World, parsed: list[str]) -> None:
    source = world.source("once", 100)
    request = post(documents.reprocessing(source, files_per_job=1))
    asked = world.configcache.script.calls
    world.dbs.script.arm(Mode.DOWN)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.SUBMITTED
    world.clock.advance(3600)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED
    assert (world.configcache.script.calls, parsed) == (asked, [request.request_name])


def test_one_that_was_stored_as_new_is_read_when_it_is_submitted(world: World, parsed: list[str]) -> None:
    request = post(documents.generation(300), submit=False)
    assert request.prepared is None
    request_submit(request=request, **BY)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED
    assert (world.configcache.script.calls, len(parsed)) == (2 * CONFIGURATIONS, 2)


def test_one_that_was_imported_unchecked_is_read_by_the_life_cycle(world: World) -> None:
    request = request_import(document=documents.generation(300), request_name=None, actor="tester")
    world.configcache.script.arm(Mode.DOWN)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.SUBMITTED
    world.clock.advance(3600)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED


def test_one_of_before_there_was_anything_to_keep_is_read_by_the_life_cycle(world: World) -> None:
    document = documents.generation(300)
    request = request_row(S.SUBMITTED, request_name=document["RequestName"], request_data=document)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED


def test_one_that_was_held_before_it_was_read_is_read_again_when_it_is_released(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration may have been corrected meanwhile: that is what a refusal asks for."""
    request = post(documents.generation(300))
    request_hold(request=request, **BY)
    assert fresh(request).prepared is None
    corrected = {name: config._replace(pset="corrected\n") for name, config in documents.CONFIGS.items()}
    monkeypatch.setattr("tests.support.scripted.catalogues.CONFIGS", corrected)
    request_release(request=request, **BY)
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED
    assert Workflow.objects.get(request=request).psets == {"Gen": "corrected\n", "Reco": "corrected\n"}


def test_one_that_ends_before_it_was_read_keeps_nothing(world: World) -> None:
    request = post(documents.generation(300))
    assert request.prepared is not None
    request_abort(request=request, **BY)
    assert fresh(request).prepared is None


def test_the_numbers_of_the_splitting_are_shown_from_the_import_on(world: World) -> None:
    request = post(documents.generation(300))
    made = {"algorithm": "EventBased", "events_per_job": documents.EVENTS_PER_JOB, "events_per_lumi": documents.EVENTS_PER_LUMI}
    assert request.splitting_params == made
    world.evaluate(request, steps=1)
    assert Workflow.objects.get(request=request).splitting_params == made


def test_a_request_of_before_shows_its_numbers_once_it_has_its_workflow(world: World) -> None:
    document = documents.reprocessing(world.source("numbers", 100), lumis_per_job=7)
    request = request_row(
        S.SUBMITTED, request_name=document["RequestName"], request_data=document, splitting_params={"algorithm": "LumiBased"}
    )
    world.evaluate(request, steps=1)
    assert fresh(request).splitting_params == {"algorithm": "LumiBased", "lumis_per_job": 7}
