"""Dead letters: one list of what no retry brings on any more, whoever owns it; retried and discarded there."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAG, Leftover
from outputs_app.models import BlockValidation, Comparison, Effect, EffectState, StorageCheck
from requests_app.models import DeadLetter, DeadLetterKind, Harvest, HarvestState, ReqMgr2Request, RequestStatus
from requests_app.services.dead_letters import ADVICE
from tests.support.problems import problem
from tests.support.rest_clients import operator, reader
from tests.support.rows import dag_row, new_block, new_effect, unit_row
from wms2.models import AuditEntry, FailingTask

pytestmark = pytest.mark.django_db
K = DeadLetterKind
WHY = {"reason": "r"}
__all__ = ["operator", "reader"]


@pytest.fixture(autouse=True)
def _one_of_each() -> None:
    now = timezone.now()
    block = new_block()
    request = block.workflow.request
    new_effect(EffectState.DEAD, block=block, request=request, last_error="DBS is down", key="dead")
    new_effect(EffectState.PENDING, block=block, request=request, key="pending")
    Harvest.objects.create(request=request, dataset="/a/b/DQMIO", state=HarvestState.FAILED, problem="HTTP 500", next_try_at=now)
    dag = DAG.objects.filter(workflow=block.workflow).first() or dag_row(block.workflow)
    unit = dag.work_units.first() or unit_row(dag)
    Leftover.objects.create(unit=unit, site="T2_A", tries=3, problem="denied", next_try_at=now)
    Leftover.objects.create(unit=unit, site="T2_B", tries=2, problem="denied", next_try_at=now)
    validation = BlockValidation.objects.create(block=block, asked_at=now)
    place = {"validation": validation, "generation": 1, "files": 1, "next_try_at": now}
    StorageCheck.objects.create(rse="A", site="T2_A", tries=4, problem="no answer", **place)
    StorageCheck.objects.create(rse="B", site="T2_B", tries=9, problem="", done_at=now, **place)
    Comparison.objects.create(last_error="Rucio is down", ended_at=now - timedelta(days=2), due_at=now)
    Comparison.objects.create(dataset=block.dataset, last_error="Rucio is down", ended_at=now, due_at=now)
    DAG.objects.filter(pk=dag.pk).update(pack_problem="disk full", directory_id=dag.pk)
    ReqMgr2Request.objects.create(name="bad", problem="Memory: too much")
    ReqMgr2Request.objects.create(name="soon", problem="not yet: DBS")
    times = dict.fromkeys(("since", "last_at", "next_at"), now)
    for name, failures in (("sites_app.tasks.sync_sites", 3), ("sites_app.tasks.refresh_slots", 2)):
        FailingTask.objects.create(name=name, failures=failures, last_error="e", **times)


def dead_letter(kind: DeadLetterKind) -> DeadLetter:
    return DeadLetter.objects.get(kind=kind)


def test_each_kind_is_in_it_once_with_what_to_do(reader: APIClient) -> None:
    lines = reader.get("/api/v1/dead-letters").json()["results"]
    assert sorted(line["kind"] for line in lines) == sorted(DeadLetterKind.values)
    assert {line["kind"]: line["todo"] for line in lines} == ADVICE
    (task,) = reader.get("/api/v1/dead-letters?kind=task").json()["results"]
    assert (task["id"], task["what"], task["attempts"], task["request_name"]) == (
        "task-sites_app.tasks.sync_sites", "sites_app.tasks.sync_sites", 3, None,
    )  # fmt: skip
    assert reader.get(f"/api/v1/dead-letters/{task['id']}").json() == task


def act(client: APIClient, kind: DeadLetterKind, action: str) -> None:
    found = dead_letter(kind)
    answer = client.post(f"/api/v1/dead-letters/{found.pk}/{action}", WHY)
    assert (answer.status_code, answer.json()["what"]) == (202, found.what), answer.content


def test_each_kind_can_be_retried_by_its_owner(operator: APIClient) -> None:
    for kind in DeadLetterKind:
        act(operator, kind, "retry")
    assert Effect.objects.get(key="dead").state == EffectState.PENDING
    assert Harvest.objects.get().state == HarvestState.WAITING
    assert Leftover.objects.get(site="T2_A").tries == 0
    assert set(DeadLetter.objects.values_list("kind", flat=True)) == {K.COMPARISON, K.PACK, K.REQMGR2, K.TASK}, "not yet over"
    assert AuditEntry.objects.filter(actor="olga", reason="r").count() == len(DeadLetterKind)
    assert problem(operator.post("/api/v1/dead-letters/effect-1/retry", WHY), 404, "not_found")


def test_what_can_be_given_up_is_gone_and_the_rest_says_why_not(operator: APIClient) -> None:
    for kind in (K.HARVEST, K.LEFTOVER, K.STORAGE, K.COMPARISON, K.TASK, K.EFFECT):
        act(operator, kind, "discard")
    assert Effect.objects.get(key="dead").state == EffectState.DISCARDED
    assert "olga: r" in Leftover.objects.get(site="T2_A").problem
    assert set(DeadLetter.objects.values_list("kind", flat=True)) == {K.PACK, K.REQMGR2}
    refused = operator.post(f"/api/v1/dead-letters/{dead_letter(K.REQMGR2).pk}/discard", WHY)
    assert "put right what it says" in problem(refused, 409, "invalid_transition")["detail"]


def test_files_of_a_request_that_is_cleaned_are_not_given_up(operator: APIClient) -> None:
    found = dead_letter(K.LEFTOVER)
    assert found.request is not None
    type(found.request).objects.filter(pk=found.request.pk).update(status=RequestStatus.CLEANING)
    refused = operator.post(f"/api/v1/dead-letters/{found.pk}/discard", WHY)
    assert "accept there" in problem(refused, 409, "invalid_transition")["detail"]
