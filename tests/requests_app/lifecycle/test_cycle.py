"""What a poll hands out, in which order, and what a sweep finds."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from dags_app.models import DAG, DAGStatus
from requests_app.alerts import alert_over
from requests_app.lease import due_now, evaluating
from requests_app.lifecycle import cycle, evaluator
from requests_app.lifecycle.cycle import run_cycle, sweep
from requests_app.lifecycle.watching import schedds_to_watch
from requests_app.models import EvaluationLease, Event, HoldCode, Request, RequestStatus
from requests_app.notifying import leading
from requests_app.selectors.explain import explain
from requests_app.selectors.requests import requests_with_workflow
from requests_app.states import hold_changes, transition
from sites_app.models import ScheddState
from tests.support.rows import dag_row, request_row, schedd_row, workflow_row
from tests.support.statements import statements
from wms2.adapters import factory
from wms2.adapters.types import DagmanAd, JobStatus, QueueAnswer, ScheddAd
from wms2.conf import conf
from wms2.models import Wake
from wms2.runtime import notify
from wms2.runtime.due import mark_due

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
    mark_due([woken.pk], "test")
    lease_row(S.HELD, due_at=now + timedelta(minutes=5))
    lease_row(S.ACTIVE)
    assert due_now(10) == [timer.pk, woken.pk]
    assert due_now(1) == [timer.pk]


def test_what_somebody_evaluates_is_not_handed_out_again_until_it_is_woken_meanwhile() -> None:
    request = lease_row(S.ACTIVE)
    mark_due([request.pk], "first")
    with evaluating(request.pk, owner="a") as evaluation:
        assert evaluation is not None
        assert due_now(10) == []
        mark_due([request.pk], "in the middle")
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


def test_what_is_submitted_or_runs_is_swept_within_ten_minutes() -> None:
    nine, seven = (timezone.now() - timedelta(minutes=minutes) for minutes in (9, 7))
    soon = {lease_row(status, evaluated_at=nine).pk for status in (S.SUBMITTED, S.ACTIVE)}
    for status, at in ((S.SUBMITTED, seven), (S.ACTIVE, seven), (S.HELD, nine), (S.QUEUED, nine)):
        lease_row(status, evaluated_at=at)
    assert sweep(transaction.atomic, 3600.0) == 2
    assert set(due_now(10)) == soon


@pytest.mark.parametrize("explained", [True, False])
def test_what_a_sweep_finds_and_no_wake_explains_was_forgotten(explained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(evaluator.log, "error", lambda event, **_: reported.append(event))
    request = lease_row(S.SUBMITTED, due_at=timezone.now() - timedelta(seconds=1), sweep=True)
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get(pk=request.pk).status == S.HELD
    lease = EvaluationLease.objects.get()
    assert "status held" in lease.found
    assert not [event for event in reported if "forgotten" in event], "the schedd's answer may be on its way"

    EvaluationLease.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    if explained:
        mark_due([request.pk], "DAG observed")
    for _ in range(2):
        evaluator.evaluate_one(request.pk)
    assert len([event for event in reported if "forgotten" in event]) == (0 if explained else 1)
    codes = Event.objects.filter(request=request, kind="alert").values_list("data__code", flat=True)
    assert ("forgotten" in codes) is not explained


def test_an_alert_that_a_sweep_finds_over_was_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    past = timezone.now() - timedelta(seconds=1)
    request = lease_row(S.ACTIVE, due_at=past, sweep=True)
    Request.objects.update(alert_code="all_failing", alerted_at=past)
    monkeypatch.setattr(evaluator, "evaluate", lambda evaluation: alert_over(evaluation, "all_failing"))
    evaluator.evaluate_one(request.pk)
    lease = EvaluationLease.objects.get()
    assert (Request.objects.get().alert_code, lease.found, lease.due_at) == ("", "", None)


def test_the_alert_of_a_forgotten_request_is_over_with_the_next_that_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    past = timezone.now() - timedelta(seconds=1)
    request = lease_row(S.ACTIVE, due_at=past, found="status active")
    monkeypatch.setattr(evaluator, "evaluate", lambda evaluation: None)
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get().alert_code == "forgotten"
    EvaluationLease.objects.update(due_at=past, sweep=True)
    monkeypatch.setattr(evaluator, "evaluate", lambda evaluation: evaluation.note(waiting_for="another job"))
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get().alert_code == "forgotten", "a sweep has found something to do again"
    mark_due([request.pk], "DAG observed")
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get().alert_code == ""
    assert Event.objects.filter(kind="alert_over", data__code="forgotten").exists()


def test_a_forgotten_request_whose_row_is_locked_takes_no_other_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise OperationalError("canceling statement due to lock timeout") from LockNotAvailable()

    past = timezone.now() - timedelta(seconds=2)
    lease_row(S.ACTIVE, due_at=past, found="status active")
    other = lease_row(S.ACTIVE, due_at=timezone.now() - timedelta(seconds=1))
    monkeypatch.setattr(evaluator, "evaluate", lambda evaluation: None)
    monkeypatch.setattr(evaluator, "alert", locked)
    assert evaluator.evaluate_due(seconds=1) == 2
    assert EvaluationLease.objects.get(request=other).evaluated_at is not None


def test_a_request_of_which_rows_stay_locked_says_so_once_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise OperationalError("canceling statement due to lock timeout\nCONTEXT: while locking") from LockNotAvailable()

    request = lease_row(S.ACTIVE, due_at=timezone.now() - timedelta(seconds=1))
    monkeypatch.setattr(evaluator, "evaluate", locked)
    said = []
    for _ in range(3):
        evaluator.evaluate_one(request.pk)
        said.append(Request.objects.get().waiting_for)
    assert said[:2] == ["", ""], "a lock of a moment is no news"
    assert said[2].startswith(evaluator.LOCKED) and "CONTEXT" not in said[2]
    monkeypatch.setattr(evaluator, "evaluate", lambda evaluation: None)
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get().waiting_for == ""


def test_a_request_that_is_due_for_long_and_taken_by_none_says_so(django_assert_num_queries: Any) -> None:
    """Its own row is locked: then no evaluation begins, and nothing can be written on it."""
    request = lease_row(S.ACTIVE, due_at=timezone.now() - timedelta(minutes=30))
    read = requests_with_workflow().get(pk=request.pk)
    with django_assert_num_queries(0):
        assert "no process has taken it" in explain(read).why
    EvaluationLease.objects.update(owner="worker", expires_at=timezone.now() + timedelta(minutes=1))
    assert explain(requests_with_workflow().get(pk=request.pk)).why == ""


def test_a_request_that_is_woken_before_its_sweep_was_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    request = lease_row(S.SUBMITTED, due_at=timezone.now() - timedelta(seconds=1), sweep=True)
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    mark_due([request.pk], "test")
    evaluator.evaluate_one(request.pk)
    assert Request.objects.get(pk=request.pk).status == S.HELD
    assert EvaluationLease.objects.get().found == ""


def test_a_cycle_and_a_poll_in_which_nothing_happens_take_as_many_statements_for_many_requests_as_for_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedd, dags = schedd_row(max_dagman_slots=2), list[DAG]()  # nobody has room there
    monkeypatch.setattr(
        factory, "htcondor", lambda *_: SimpleNamespace(watch=lambda instance: watched(dags), orphans=lambda _: [])
    )
    monkeypatch.setattr(notify, "_send", lambda *_: None)
    monkeypatch.setattr(leading, "EVERY_SECONDS", float("inf"))  # once, however long this takes
    monkeypatch.setattr(cycle, "ALERTS", leading.FromLeader())
    asked = []
    for further in (3, 27):
        for _ in range(further):
            request_row(S.QUEUED)
            ours = {"schedd": schedd, "schedd_name": schedd.name, "dagman_cluster_id": str(len(dags) + 1)}
            dags.append(dag_row(workflow_row(request_row(S.ACTIVE)), DAGStatus.RUNNING, **ours))
        for _ in range(2):
            assert run_cycle(force=True)
        Wake.objects.all().delete()  # as if all had been evaluated
        EvaluationLease.objects.update(evaluated_at=timezone.now(), due_at=None)
        for whole in (True, False):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                assert run_cycle(force=whole) == whole
            asked.append(statements(captured))
        assert due_now(100) == []
    assert [len(each) for each in asked[:2]] == [len(each) for each in asked[2:]]


def watched(dags: list[DAG]) -> QueueAnswer:
    """A schedd with all of these in its queue, in which nothing moves."""
    ads = [
        DagmanAd(
            cluster=int(dag.dagman_cluster_id), parent_cluster=None, node="", dag_id=str(dag.pk), request_name="r",
            fence=dag.fence, job_status=JobStatus.RUNNING, hold_reason="", job_starts=1, queued_at_seconds=1,
            status_since_seconds=1, dag_status=0, nodes_total=9, nodes_done=0, nodes_failed=0,
            jobs_idle=3, jobs_held=0, jobs_running=2, counted_at_seconds=1,
        )
        for dag in dags
    ]  # fmt: skip
    return QueueAnswer(ScheddAd("schedd@test", "25.14.1", 1), ads, [])


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


@pytest.mark.parametrize(
    ("status", "minutes", "left"),
    [(S.ACTIVE, -1, ""), (S.ACTIVE, 9, "dbs: silent"), (S.QUEUED, -1, "dbs: silent"), (S.PLANNING, -1, "dbs: silent")],
)
def test_the_last_error_goes_when_the_step_works_that_had_failed(status: S, minutes: int, left: str) -> None:
    again = timezone.now() + timedelta(minutes=minutes)
    request = lease_row(status)
    Request.objects.filter(pk=request.pk).update(last_error="dbs: silent", failed_attempts=2, next_attempt_at=again)
    with evaluating(request.pk, owner="a") as evaluation:
        assert evaluation is not None
        evaluator._works_again(evaluation)
    row = Request.objects.get(pk=request.pk)
    assert (row.last_error, row.failed_attempts) == (left, 2 if left else 0)


def test_the_last_error_of_an_attempt_ends_with_the_status_in_which_it_was_overcome() -> None:
    for old, to, left in ((S.PLANNING, S.ACTIVE, ""), (S.PLANNING, S.HELD, "dbs: silent"), (S.STOPPING, S.QUEUED, "")):
        request = request_row(old, last_error="dbs: silent", failed_attempts=1)
        why = hold_changes(HoldCode.OPERATOR, "test") if to is S.HELD else {}
        transition(request, to, actor="test", reason="test", **why)
        assert Request.objects.get(pk=request.pk).last_error == left
