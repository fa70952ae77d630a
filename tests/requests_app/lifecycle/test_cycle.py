"""What a poll hands out, in which order, and what a sweep finds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from dags_app.models import DAGStatus
from requests_app.lease import due_now, evaluating
from requests_app.lifecycle import evaluator
from requests_app.lifecycle.cycle import sweep
from requests_app.lifecycle.watching import schedds_to_watch
from requests_app.models import EvaluationLease, Request, RequestStatus
from sites_app.models import ScheddState
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from wms2.conf import conf
from wms2.wakes import wake

pytestmark = pytest.mark.django_db
S = RequestStatus


def lease_row(status: S, **fields: object) -> Request:
    request = request_row(status)
    EvaluationLease.objects.create(request=request, **fields)
    return request


def test_what_has_waited_longest_comes_first_whether_it_was_woken_or_its_time_has_come() -> None:
    now = timezone.now()
    timer = lease_row(S.ACTIVE, due_at=now - timedelta(minutes=5))
    woken = lease_row(S.QUEUED)
    wake([woken.pk], "test")
    lease_row(S.HELD, due_at=now + timedelta(minutes=5))
    lease_row(S.ACTIVE)
    assert due_now(10) == [timer.pk, woken.pk]
    assert due_now(1) == [timer.pk]


def test_what_somebody_evaluates_is_not_handed_out_again_until_it_is_woken_meanwhile() -> None:
    request = lease_row(S.ACTIVE)
    wake([request.pk], "first")
    with evaluating(request.pk, owner="a") as evaluation:
        assert evaluation is not None
        assert due_now(10) == []
        wake([request.pk], "in the middle")
        assert due_now(10) == [], "it is being evaluated"
    assert due_now(10) == [request.pk], "what came in the middle may not have been seen"
    with evaluating(request.pk, owner="a"):
        pass
    assert due_now(10) == []


def test_an_evaluation_that_dies_is_due_when_its_lease_expires() -> None:
    request = lease_row(S.ACTIVE)
    with pytest.raises(SystemExit), evaluating(request.pk, owner="a"):
        raise SystemExit
    lease = EvaluationLease.objects.get()
    assert lease.due_at is not None
    assert lease.due_at <= timezone.now() + timedelta(seconds=conf().cycle_seconds)


def test_a_sweep_has_looked_at_what_nothing_wakes_and_lets_alone_what_will_be_looked_at() -> None:
    now = timezone.now()
    long_ago = now - timedelta(seconds=conf().sweep_seconds + 1)
    forgotten = lease_row(S.ACTIVE, evaluated_at=long_ago)
    later = lease_row(S.HELD, evaluated_at=long_ago, due_at=now + timedelta(days=1))
    without = request_row(S.QUEUED)
    lease_row(S.ACTIVE, evaluated_at=now)
    lease_row(S.ACTIVE, evaluated_at=long_ago, due_at=now + timedelta(seconds=1))
    lease_row(S.COMPLETED, evaluated_at=long_ago)
    assert sweep(transaction.atomic) == 3
    assert set(due_now(10)) == {forgotten.pk, later.pk, without.pk}


@pytest.mark.parametrize("explained", [True, False])
def test_what_a_sweep_finds_and_no_wake_explains_was_forgotten(explained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(evaluator.log, "error", lambda event, **_: told.append(event))
    request = lease_row(S.SUBMITTED, due_at=timezone.now() - timedelta(seconds=1), sweep=True)
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get(pk=request.pk).status == S.HELD
    lease = EvaluationLease.objects.get()
    assert "status held" in lease.found
    assert not [event for event in told if "forgotten" in event], "the schedd's answer may be on its way"

    EvaluationLease.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    if explained:
        wake([request.pk], "DAG observed")
    for _ in range(2):
        evaluator.evaluate_one(request.pk)
    assert len([event for event in told if "forgotten" in event]) == (0 if explained else 1)


def test_a_request_that_is_woken_before_its_sweep_was_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    request = lease_row(S.SUBMITTED, due_at=timezone.now() - timedelta(seconds=1), sweep=True)
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    wake([request.pk], "test")
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get(pk=request.pk).status == S.HELD
    assert EvaluationLease.objects.get().found == ""


def test_schedds_are_watched_once_each_while_they_may_get_dags_have_some_or_lost_some() -> None:
    now = timezone.now()
    gone = {"dagman_cluster_id": "7", "lost_confirmed_at": now}
    cases = {
        "enabled": (ScheddState.ENABLED, DAGStatus.COMPLETED, {}),
        "live": (ScheddState.DISABLED, DAGStatus.RUNNING, {}),
        "lost": (ScheddState.DISABLED, DAGStatus.REMOVED, gone),
        "settled": (ScheddState.DISABLED, DAGStatus.REMOVED, gone | {"lost_settled_at": now}),
        "ended": (ScheddState.DISABLED, DAGStatus.COMPLETED, {}),
    }
    for name, (state, status, fields) in cases.items():
        schedd = schedd_row(name, state=state)
        for number in range(2):
            fields = fields | ({"dagman_cluster_id": str(number)} if fields else {})
            dag_row(workflow_row(), status, schedd=schedd, schedd_name=name, **fields)
    assert sorted(schedd.name for schedd in schedds_to_watch()) == ["enabled", "live", "lost"]
