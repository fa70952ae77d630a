"""The evaluation lease: one at a time, lost ones write nothing, a dead one's expires."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import DAGStatus
from requests_app import lease
from requests_app.lease import Evaluation, evaluating, evaluating_due
from requests_app.lifecycle.evaluator import CHANGED, HANDLERS, check_request, evaluate_one
from requests_app.limits import limit_set
from requests_app.models import EvaluationLease, Request, RequestStatus, StopIntent
from tests.support.calls import overdue, stopping
from tests.support.rows import dag_row, request_row, workflow_row
from wms2.adapters.caller import retry_call
from wms2.conf import conf
from wms2.errors import LeaseLost, StaleState
from wms2.runtime.due import mark_due

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_second_evaluation_finds_the_request_taken() -> None:
    request = request_row(RequestStatus.QUEUED)
    with evaluating(request.pk, owner="a") as first:
        assert first is not None
        with evaluating(request.pk, owner="b") as second:
            assert second is None
    with evaluating(request.pk, owner="b") as third:
        assert third is not None


def test_the_lease_of_a_dead_process_expires_and_its_late_writes_are_refused() -> None:
    request = request_row(RequestStatus.QUEUED)
    with evaluating(request.pk, owner="dead") as old:
        assert old is not None
        EvaluationLease.objects.filter(pk=request.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        with evaluating(request.pk, owner="new") as new:
            assert new is not None
            with pytest.raises(LeaseLost), old.fenced():
                raise AssertionError("the block of a lost lease must not run")
            with pytest.raises(LeaseLost):
                old.note(waiting_for="never seen")
            with new.fenced():
                Request.objects.filter(pk=request.pk).update(last_error="written by the new one")
    assert Request.objects.get(pk=request.pk).last_error == "written by the new one"
    assert Request.objects.get(pk=request.pk).waiting_for == ""


def test_a_verb_in_between_stops_the_evaluations_writes_and_its_notes() -> None:
    request = request_row(RequestStatus.QUEUED)
    with evaluating(request.pk, owner="a") as evaluation:
        assert evaluation is not None
        Request.objects.filter(pk=request.pk).update(status=RequestStatus.ABORTED)
        with pytest.raises(LeaseLost), evaluation.fenced():
            raise AssertionError("the status has changed")
        with pytest.raises(LeaseLost):
            evaluation.note(waiting_for="its turn")
    assert Request.objects.get(pk=request.pk).waiting_for == "", "it would stand beside another status"


def test_a_long_evaluation_keeps_its_lease(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from requests_app import lease as module

    short = module.conf().model_copy(update={"lease_seconds": 0.3})
    monkeypatch.setattr(module, "conf", lambda: short)
    request = request_row(RequestStatus.QUEUED)
    with evaluating(request.pk, owner="a") as held:
        assert held is not None
        first = EvaluationLease.objects.get(pk=request.pk).expires_at
        deadline = time.monotonic() + 10
        while EvaluationLease.objects.get(pk=request.pk).expires_at == first and time.monotonic() < deadline:
            time.sleep(0.02)
        renewed = EvaluationLease.objects.get(pk=request.pk).expires_at
    assert renewed > first


def test_an_evaluation_that_breaks_each_cycle_says_so_until_it_works(tmp_path: Path) -> None:
    """Here its workflow is missing, which no code foresees."""
    request = request_row(RequestStatus.ACTIVE)
    for _ in range(2):
        evaluate_one(request.pk)
        request.refresh_from_db()
        assert request.waiting_for.startswith("a repair of WMS2; its step breaks, and is tried again each cycle: ")
        assert "no workflow" in request.waiting_for
        assert request.status == RequestStatus.ACTIVE
    dag_row(workflow_row(request), DAGStatus.RUNNING, submit_dir=str(tmp_path))
    evaluate_one(request.pk)
    request.refresh_from_db()
    assert "its step breaks" not in request.waiting_for


def test_an_evaluation_that_gives_way_each_time_says_to_what_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that contradict each other look like a change of another process: it would stand still in silence."""
    request = request_row(RequestStatus.PLANNING)

    def gives_way(evaluation: Evaluation) -> None:
        raise StaleState("the DAG has no schedd yet")

    workflow_row(request)
    monkeypatch.setitem(HANDLERS, RequestStatus.PLANNING, gives_way)
    for _ in range(2):
        evaluate_one(request.pk)
        request.refresh_from_db()
        assert request.waiting_for == f"{CHANGED} the DAG has no schedd yet"
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    evaluate_one(request.pk)
    request.refresh_from_db()
    assert (request.status, request.hold_code) == (RequestStatus.HELD, "timeout")
    assert "the DAG has no schedd yet" in request.hold_reason
    again = request_row(RequestStatus.VALIDATING_OUTPUTS, waiting_for=f"{CHANGED} its rows")
    monkeypatch.setitem(HANDLERS, RequestStatus.VALIDATING_OUTPUTS, lambda evaluation: None)
    evaluate_one(again.pk)
    again.refresh_from_db()
    assert again.waiting_for == "", "it works, and says nothing itself"


def test_requests_that_are_taken_together_read_the_limits_once_and_those_of_the_moment() -> None:
    requests = [request_row(RequestStatus.QUEUED) for _ in range(5)]
    EvaluationLease.objects.bulk_create([EvaluationLease(request=request) for request in requests])
    mark_due([request.pk for request in requests], "test")
    limit_set(name="timeout_queued_seconds", value=500_000, actor="olga", reason="test")
    with CaptureQueriesContext(connection) as captured, evaluating_due(owner="a", limit=20) as evaluations:
        for evaluation in evaluations:
            check_request(evaluation)
    assert sum('FROM "limits"' in query["sql"] for query in captured) == 1
    due = {lease.due_at - lease.request.status_since for lease in EvaluationLease.objects.select_related("request")}
    assert due == {timedelta(seconds=500_000)}
    limit_set(name="timeout_queued_seconds", value=400_000, actor="olga", reason="test")
    with evaluating_due(owner="a", limit=20) as evaluations:
        assert {evaluation.limits().timeout_queued_seconds for evaluation in evaluations} == {400_000}


def calls(number: int = 1) -> int:
    """Outside ones that go out."""
    made: list[int] = []
    for each in range(number):
        with suppress(LeaseLost):
            retry_call(partial(made.append, each))
    return len(made)


def test_an_evaluation_that_was_stopped_calls_nothing_once_its_lease_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, request = stopping(monkeypatch), request_row(RequestStatus.QUEUED)
    with evaluating(request.pk, owner="a"):
        assert calls() == 1
        stop(conf().lease_seconds)
        assert calls() == 0
    assert calls() == 1, "the process works under no lease any more"


def test_of_several_taken_together_each_has_its_own_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lasts a few seconds from when they were taken, and is renewed for longer only once its evaluation has begun."""
    stop, requests = stopping(monkeypatch), [request_row(RequestStatus.QUEUED) for _ in range(2)]
    EvaluationLease.objects.bulk_create([EvaluationLease(request=request, due_at=overdue()) for request in requests])
    with evaluating_due(owner="a", limit=20) as evaluations:
        next(evaluations)
        assert calls() == 1
        next(evaluations)
        stop(3 * lease.TIME_SLICE_SECONDS)
        assert calls() == 0


def test_workers_do_not_take_requests_from_each_other_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that takes longer than the leases of several taken together live, it is waited for from the second time on."""
    monkeypatch.setattr(lease, "TIME_SLICE_SECONDS", 0.1)
    monkeypatch.setattr(lease, "_reading_seconds", 0.0)
    requests, read = [request_row(RequestStatus.QUEUED) for _ in range(2)], lease._requests
    EvaluationLease.objects.bulk_create([EvaluationLease(request=request, due_at=overdue()) for request in requests])
    taken = []

    class Slow:
        def in_bulk(self, pks: list[Any]) -> dict[Any, Request]:
            time.sleep(0.4)
            taken.append(lease._take([request.pk for request in requests], "another"))
            return read().in_bulk(pks)

    monkeypatch.setattr(lease, "_requests", Slow)
    for _ in range(2):
        with evaluating_due(owner="a", limit=20):
            pass
        EvaluationLease.objects.update(due_at=overdue(), expires_at=None)
    assert [len(each) for each in taken] == [2, 0]


def test_a_lease_that_has_run_out_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_row(RequestStatus.QUEUED)
    EvaluationLease.objects.create(request=request)
    (held,) = lease._take([request.pk], "a")
    assert lease._renew(held)
    EvaluationLease.objects.update(expires_at=overdue())
    assert not lease._renew(held)


def test_a_step_that_breaks_after_its_transition_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken back with its transaction is not so: else nothing could be noted beside a status that the row has not."""
    request = request_row(RequestStatus.STOPPING, stop_intent=StopIntent.ABORT)
    workflow_row(request)

    def breaks(request: Request) -> None:
        raise ValueError("its blocks cannot be ended")

    monkeypatch.setattr("requests_app.lifecycle.stopping.ended_follow_up", breaks)
    for _ in range(2):
        evaluate_one(request.pk)
        request.refresh_from_db()
        assert (request.status, request.last_error) == (RequestStatus.STOPPING, "ValueError: its blocks cannot be ended")
        assert request.waiting_for.startswith("a repair of WMS2")
    Request.objects.filter(pk=request.pk).update(status_since=timezone.now() - timedelta(days=1))
    evaluate_one(request.pk)
    request.refresh_from_db()
    assert request.alert_code == "slow_stopping"
    monkeypatch.undo()
    evaluate_one(request.pk)
    request.refresh_from_db()
    assert request.status == RequestStatus.ABORTED
