"""This release on the next one's tables, and before its own are there (ADR 0097)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from outputs_app import executor
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app.installation import installation_claim
from requests_app.models import LEADER_LEASE, Lease, RequestStatus
from requests_app.monitoring.instance_gate import InstanceGate
from tests.support import services
from tests.support.next_release import a_row_has_a_later_word, expanded
from tests.support.scene import Scene
from tests.support.scripted import documents
from tests.support.scripted.progress import status
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from tests.support.stack import celery_worker, worker
from tests.support.web_clients import built  # noqa: F401
from wms2.celery import app
from wms2.nudge import EVALUATE_DUE


def before_the_newest() -> Any:
    """As if a migration of this release were still to come."""
    row = MigrationRecorder(connection).migration_qs.filter(app="requests_app").latest("name")
    row.delete()
    return row


@pytest.mark.django_db
def test_a_web_on_older_tables_serves_nothing_but_its_health_until_they_are_migrated(client: Client) -> None:
    answers: list[tuple[str, dict[str, str]]] = []

    def ask(path: str) -> str:
        body = b"".join(gate({"PATH_INFO": path}, lambda status, headers: answers.append((status, dict(headers)))))
        return body.decode()

    installation_claim()
    missing = before_the_newest()
    gate = InstanceGate(lambda environ, start: [b"served"])
    assert "is yet to be migrated" in ask("/api/v1/requests")
    assert (answers[0][0], int(answers[0][1]["Retry-After"]) > 0) == ("503 Service Unavailable", True)
    assert ask("/livez") == ask("/readyz") == "served"
    told = client.get("/readyz").json()["reasons"]["instance"]
    assert missing.name in told and "manage.py migrate" in told
    MigrationRecorder(connection).record_applied(missing.app, missing.name)
    assert ask("/api/v1/requests") == "served"
    assert "instance" not in client.get("/readyz").json()["reasons"]


@pytest.mark.django_db(transaction=True)
def test_a_process_waits_for_its_tables_and_goes_on_while_those_of_the_next_release_are_made() -> None:
    installation_claim()
    missing = before_the_newest()
    with worker(WMS2_NODE="one") as running:
        running.wait(lambda: f"without requests_app {missing.name}" in running.tail(), seconds=60)
        assert not Lease.objects.exists(), "it has not acted"
        MigrationRecorder(connection).record_applied(missing.app, missing.name)
        running.wait(lambda: cycles() != "", seconds=60)
        with expanded():
            before = cycles()
            running.wait(lambda: cycles() > before, seconds=60)
        assert "broken off" not in running.tail(100_000)


def cycles() -> str:
    """When the last one ended."""
    lease = Lease.objects.filter(name=LEADER_LEASE).first()
    return str(lease.data.get("cycle_ended_at", "")) if lease else ""


@pytest.mark.django_db(transaction=True)
def test_a_request_lives_its_life_on_tables_of_the_next_release(world: World) -> None:
    with expanded():
        request = world.request(documents.generation(400))
        for _ in range(20):
            world.cycle()
            for job in world.schedd.live:
                world.schedd.end(job, End.FINISHED)
            world.clock.advance(60)
        assert status(request) == RequestStatus.COMPLETED
        assert not world.errors


@pytest.mark.django_db
def test_effects_of_a_later_kind_are_left_to_workers_that_know_them(built: Scene) -> None:  # noqa: F811
    effect = Effect.objects.filter(kind=EffectKind.RUCIO_FILES).first()
    assert effect is not None
    Effect.objects.exclude(pk=effect.pk).delete()
    Effect.objects.update(state=EffectState.PENDING)
    assert executor.due_effects().exists()
    assert a_row_has_a_later_word("outputs_app.Effect.kind") == effect
    executor.effects_run_due(owner="this release")
    effect.refresh_from_db()
    assert (effect.state, effect.attempts) == (EffectState.PENDING, effect.attempts)


@pytest.mark.django_db(transaction=True)
def test_a_worker_passes_over_tasks_of_a_later_release() -> None:
    installation_claim()
    services.broker_emptied()
    with celery_worker("one") as running:
        app.send_task("requests_app.tasks.of_a_later_release", args=("what", 1), ignore_result=True)
        app.send_task(EVALUATE_DUE, args=(), kwargs={"later": 1}, ignore_result=True)
        app.send_task(EVALUATE_DUE, ignore_result=True)
        running.wait(lambda: services.broker_tasks() == 0 and "succeeded" in running.tail(100_000), seconds=60)
        assert "of_a_later_release" in running.tail(100_000)
