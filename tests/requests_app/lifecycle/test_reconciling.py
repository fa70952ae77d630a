"""A whole cycle that an operator asks for: who may, what it does, what it tells; asked twice, it is one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import ProtectedError
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAGStatus
from requests_app.admission import queue
from requests_app.admission.ordering import ITS_TURN
from requests_app.lease import due_now
from requests_app.lifecycle import cycle
from requests_app.limits import limit_set
from requests_app.models import EvaluationLease, Lease, Reconciliation, RequestStatus
from tests.support.problems import problem
from tests.support.rest_clients import operator, reader
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.metrics.series import FORGOTTEN_TOTAL
from wms2.models import AuditEntry

__all__ = ["operator", "reader"]
pytestmark = pytest.mark.django_db
PATH = "/api/v1/lifecycle/reconcile"
LATER = timezone.now() + timedelta(days=1)


def ask(client: APIClient) -> int:
    answer = client.post(PATH, {"reason": "the schedd is back"})
    assert answer.status_code == 202
    assert answer["Location"].endswith(f"{PATH}/{answer.json()['id']}")
    return int(answer.json()["id"])


def test_the_leader_runs_one_whole_cycle_for_all_who_asked(operator: APIClient, reader: APIClient) -> None:
    request = request_row(RequestStatus.HELD)
    EvaluationLease.objects.create(request=request, evaluated_at=timezone.now(), due_at=timezone.now() + timedelta(days=1))
    schedd = schedd_row(orphans_asked_at=timezone.now(), state="disabled")
    assert cycle.run_cycle(force=True)
    assert not cycle.run_cycle(), "none is due"
    assert request.pk not in due_now(10)

    pk = ask(operator)
    assert ask(operator) == pk
    assert reader.get(f"{PATH}/{pk}").json()["state"] == "waiting"
    assert cycle.run_cycle()
    reported = reader.get(f"{PATH}/{pk}").json()
    assert (reported["state"], reported["asked"], reported["asked_by"], reported["reason"]) == (
        "ended",
        2,
        "olga",
        "the schedd is back",
    )
    assert (reported["found"]["requests_swept"], reported["found"]["requests_queued"]) == (1, 0)
    assert request.pk in due_now(10), "every request is looked at"
    schedd.refresh_from_db()
    assert schedd.orphans_asked_at is None, "and every schedd, when it is asked, for jobs that nobody knows"
    assert not cycle.run_cycle(), "done once"
    assert ask(operator) != pk
    assert set(AuditEntry.objects.filter(action="reconcile").values_list("actor", flat=True)) == {"olga"}


def test_only_the_leader_acts(operator: APIClient) -> None:
    pk = ask(operator)
    Lease.objects.update_or_create(
        name="lifecycle",
        defaults={"owner": "elsewhere", "process": "elsewhere:1", "expires_at": timezone.now() + timedelta(hours=1)},
    )
    assert not cycle.run_cycle()
    assert operator.get(f"{PATH}/{pk}").json()["state"] == "waiting"


def test_a_cycle_that_fails_says_so_and_one_that_was_cut_short_is_run_again(
    operator: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = ask(operator)
    Reconciliation.objects.update(begun_at=timezone.now())  # and the process was killed
    with monkeypatch.context() as broken:
        broken.setattr(cycle, "sites_drained", lambda fenced: 1 / 0)
        assert not cycle.run_cycle()
    assert operator.get(f"{PATH}/{pk}").json()["found"] == {"problem": "division by zero"}


@pytest.mark.parametrize("error", [ZeroDivisionError(), ProtectedError("others refer to it", set())])
def test_a_step_of_the_cycle_that_breaks_keeps_nobody_from_his_turn(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = list[object]()

    def breaks(leadership: object) -> None:
        raise error

    monkeypatch.setattr(cycle, "credentials_watch", breaks)
    monkeypatch.setattr(cycle, "schedds_watch", lambda *asked: looked_at.append(asked))
    monkeypatch.setattr(cycle, "admit", lambda **asked: looked_at.append(asked))
    assert not cycle.run_cycle(), "it is told"
    assert len(looked_at) == 2


def test_while_admission_breaks_those_that_wait_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), DAGStatus.RUNNING)
    limit_set(name="max_active_dags", value=1, actor="olga", reason="test")
    waiting, pausing = (request_row(RequestStatus.QUEUED, waiting_for="its turn", next_attempt_at=at) for at in (None, LATER))
    forgotten = FORGOTTEN_TOTAL._value.get()
    with monkeypatch.context() as broken:
        broken.setattr(queue, "policy_now", lambda limits: 1 / 0)
        for _ in range(2):
            assert not cycle.run_cycle(force=True)
            waiting.refresh_from_db()
            assert waiting.waiting_for == f"{queue.BROKEN_OFF} ZeroDivisionError: division by zero"
    pausing.refresh_from_db()
    assert pausing.waiting_for == "its turn", "no pass looks at it"
    assert cycle.run_cycle(force=True)
    waiting.refresh_from_db()
    assert waiting.waiting_for == ITS_TURN
    assert FORGOTTEN_TOTAL._value.get() == forgotten


def test_readers_may_not(reader: APIClient, operator: APIClient) -> None:
    problem(reader.post(PATH, {"reason": "r"}), 403, "permission_denied")
    problem(operator.post(PATH, {}), 400, "invalid", field="reason")
