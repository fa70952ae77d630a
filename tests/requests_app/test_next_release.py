"""This release on the next one's tables, and before its own are there (ADR 0028)."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import JSONField, Model, Value
from django.test import Client
from django.urls import NoReverseMatch, get_resolver, reverse

from dags_app.models import DAG, FailureGroup
from dags_app.services.watch import LONGEST_WALL, sites_count
from outputs_app.checks.cases import cases_remind
from outputs_app.checks.reconciliation.run import comparisons_run
from outputs_app.effects import executor
from outputs_app.effects.invalidation import former_end, former_run_out
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app.admission.queue import admit
from requests_app.installation import installation_claim
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.lifecycle.storage_checks import storage_checks_run
from requests_app.models import LEADER_LEASE, Lease, Request, RequestStatus, Round
from requests_app.monitoring.instance_gate import InstanceGate
from requests_app.services import request_set_steps, request_throttle
from sites_app.models import Schedd
from tests.support import every_row, services
from tests.support.next_release import a_row_has_a_later_word, expanded
from tests.support.scene import Scene
from tests.support.scripted import documents
from tests.support.scripted.later_keys import KEY, json_columns, later_keys_everywhere, later_keys_of, otherwise_everywhere
from tests.support.scripted.progress import fresh, started, status
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from tests.support.stack import celery_worker, worker
from tests.support.web_clients import built, operator  # noqa: F401
from wms2.celery import app
from wms2.metrics.series import ROWS_BROKEN_TOTAL
from wms2.runtime import clock
from wms2.runtime.notify import EVALUATE_DUE

BY: dict[str, Any] = {"actor": "olga", "reason": "because"}


def broken_rows() -> float:
    """Of all passes."""
    return sum(sample.value for family in ROWS_BROKEN_TOTAL.collect() for sample in family.samples if "total" in sample.name)


def before_the_newest() -> Any:
    """As if a migration of this release were still to come."""
    ((app, name),) = MigrationLoader(None).graph.leaf_nodes("requests_app")
    row = MigrationRecorder(connection).migration_qs.get(app=app, name=name)
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
    reported = client.get("/readyz").json()["reasons"]["instance"]
    assert missing.name in reported and "manage.py migrate" in reported
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


@pytest.mark.dear("several whole lives, each JSON column with keys of later")
@pytest.mark.django_db(transaction=True)
def test_requests_live_their_lives_with_keys_of_the_next_release_in_every_json_column(
    world: World,
    operator: Client,  # noqa: F811
) -> None:
    broken, source = broken_rows(), world.source("Source", 90, 250, 40, 120)
    requests = [world.request(documents.generation(400)), world.request(documents.reprocessing(source, lumis_per_job=5))]
    request_set_steps(request=requests[0], steps=[{"fraction": 0.5, "priority": 10}], confirm=True, **BY)
    request_throttle(request=requests[0], max_processing=50, **BY)
    met = later_keys_everywhere()
    for number in range(20):
        world.cycle()
        met |= later_keys_everywhere()
        for job in world.schedd.live:
            if number == 0:
                world.schedd.unit_failed(job, "mg_000001")
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(600)
        if {status(request) for request in requests} == {RequestStatus.COMPLETED}:
            break
    comparisons_run()
    assert [(request.status, request.waiting_for, request.hold_reason) for request in requests] == [("completed", "", "")] * 2
    assert (world.errors, broken_rows()) == ([], broken)
    assert {"Request.overrides", "Request.moving", "DAG.observed", "KeptAccount.numbers", "OutputDataset.registration"} <= met
    assert answers(operator, *requests) == {200}


@pytest.mark.django_db
def test_pages_and_passes_read_rows_of_all_kinds_with_keys_of_the_next_release(
    built: Scene,  # noqa: F811
    operator: Client,  # noqa: F811
) -> None:
    broken = broken_rows()
    assert {"FailureGroup.actions", "Lease.data", "Effect.payload"} <= later_keys_everywhere()
    for run in (leftovers_remove, storage_checks_run, cases_remind, comparisons_run, admit):
        run()
    assert broken_rows() == broken
    assert answers(operator, *Request.objects.filter(workflow__isnull=False)) == {200}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("odd", ["text", {"text": ["text"]}, None, [None]])
def test_one_row_with_something_else_in_its_json_columns_stops_no_cycle(world: World, odd: object) -> None:
    (one, _), other = started(world), world.request(documents.generation(100))
    moment = {"first_at": clock.now(), "last_at": clock.now(), "category": "transient", "code": 1}
    FailureGroup.objects.create(workflow=one.workflow, site="T2_CH_CERN", rounds={"0": odd}, **moment)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        Round.objects.update(sizing={LONGEST_WALL: odd})
        DAG.objects.update(jobs={"sites": {"T2_CH_CERN": {"idle": odd}}, "waits": odd}, observed=Value(odd, JSONField()))
        Schedd.objects.update(health_memory=Value(odd, JSONField()), orphans=[odd])
        Lease.objects.update(changes=[odd], data=Value(odd, JSONField()))
    sites_count(clock.now())
    world.cycle()
    assert status(other) == RequestStatus.ACTIVE
    assert not world.errors
    assert Schedd.objects.get().last_error == ""


@pytest.mark.deep(
    "tests/requests_app/test_next_release.py::test_pages_and_passes_read_rows_of_all_kinds_with_keys_of_the_next_release"
)
@pytest.mark.django_db
@pytest.mark.parametrize("first", (1, 3, 5))
def test_no_list_breaks_over_a_row_whose_json_column_holds_something_else(
    operator: Client,  # noqa: F811
    tmp_path: Path,
    first: int,
) -> None:
    every_row.build(tmp_path)
    forms: list[Any] = [None, "text", 7, [1, "text"], {"text": 1}, [{"text": None}]]
    otherwise_everywhere(forms[first:] + forms[:first])
    operator.raise_request_exception = False
    found = {path: operator.get(path).status_code for path in addresses_without_arguments()}
    assert {path for path, code in found.items() if code == 500} == set()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("status", [RequestStatus.QUEUED, RequestStatus.ACTIVE])
def test_one_request_with_keys_of_the_next_release_keeps_no_other_from_starting(world: World, status: RequestStatus) -> None:
    one, other = world.request(documents.generation(100)), world.request(documents.generation(100))
    world.evaluate(one, steps=8 if status == RequestStatus.ACTIVE else 1)
    assert fresh(one).status == status
    before = {
        field.model: set(field.model._base_manager.filter(**{f"{field.attname}__has_key": KEY})) for field in json_columns()
    }
    assert not any(before.values())
    assert {"Request.moving", "Request.overrides", "Workflow.spec"} <= later_keys_of(one)
    assert KEY not in fresh(other).moving
    world.evaluate(other)
    assert fresh(other).status == RequestStatus.ACTIVE
    world.evaluate(one)
    assert fresh(one).status == RequestStatus.ACTIVE


def addresses_without_arguments() -> list[str]:
    """Of pages, REST and the admin."""
    found = [admin_list_of(model) for model in admin.site._registry]
    for name in get_resolver().reverse_dict:
        with suppress(NoReverseMatch):
            found.append(reverse(name))
    return [path for path in dict.fromkeys(found) if "sso" not in path and "logout" not in path]


def admin_list_of(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def answers(client: Client, *requests: Request) -> set[int]:
    """Of all lists, and of the pages of these requests."""
    lists = [reverse(name) for name in get_resolver().reverse_dict if str(name).endswith("-list")]
    return {client.get(path).status_code for path in (*lists, reverse("board"), *(each.get_absolute_url() for each in requests))}


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
    Request.objects.filter(pk=effect.request_id).update(epoch=effect.epoch + 1)
    executor.effects_run_due(owner="this release")
    former_end(request_id=effect.request_id, request_epoch=effect.epoch + 1)
    effect.refresh_from_db()
    assert effect.state == EffectState.PENDING, "a later release may ask for it again under the new epoch"
    run_out = clock.now() - timedelta(days=1)
    Effect.objects.update(state=EffectState.CLAIMED, claimed_by="the later one", claim_expires_at=run_out)
    assert former_run_out(request_id=effect.request_id, request_epoch=effect.epoch + 1)
    effect.refresh_from_db()
    assert (effect.state, effect.claimed_by) == (EffectState.CLAIMED, "the later one")


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
