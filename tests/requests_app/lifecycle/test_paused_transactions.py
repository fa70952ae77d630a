"""Somebody is paused in a transaction and keeps rows locked: others go on, and what needs those rows is put off."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.test import Client
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGStatus
from requests_app.admission.queue import admit_if_changed
from requests_app.lease import evaluating
from requests_app.lifecycle.evaluator import evaluate_one
from requests_app.models import Request, RequestStatus
from requests_app.services import request_hold
from tests.support.faults import fault
from tests.support.locking import aside, paused
from tests.support.problems import problem
from tests.support.rows import request_row
from tests.support.scripted import documents
from tests.support.scripted.world import World
from tests.support.waiting import until
from wms2.metrics.series import LOCKS_REFUSED_TOTAL
from wms2.runtime.locks import NAMESPACE, LockKey, lock_refused, unless_locked

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


def fresh(request: Request) -> Request:
    return Request.objects.get(pk=request.pk)


@fault(
    "transaction paused",
    done="a session locks a request's row, or the lock of admission, in a transaction and does nothing more",
    spec="ADR 0013",
    afterwards="evaluations of others go on at once, that request's is put off and counted, and goes on when the lock is gone",
)
def test_a_locked_request_is_left_for_the_next_cycle_and_the_others_go_on(world: World) -> None:
    locked, other = (world.request(documents.generation(100)) for _ in range(2))
    with paused("SELECT 1 FROM requests WHERE id = %s FOR UPDATE", locked.pk):
        with evaluating(locked.pk, owner="a") as evaluation:
            assert evaluation is None, "whoever waited here would be a worker less"
        world.evaluate(other)
        assert fresh(other).status == S.ACTIVE
    world.evaluate(locked)
    assert fresh(locked).status == S.ACTIVE


@fault(
    "transaction paused at admission",
    done="a session keeps the lock of admission in a transaction and does nothing more",
    spec="ADR 0013",
    afterwards="the poll's admission gives up soon, is counted, and admits when the lock is gone",
)
def test_a_kept_admission_lock_puts_the_admission_off(world: World) -> None:
    request = world.request(documents.generation(100))
    world.evaluate(request, steps=1)
    assert fresh(request).status == S.QUEUED
    before = LOCKS_REFUSED_TOTAL.labels("cycle")._value.get()
    with paused("SELECT pg_advisory_xact_lock(%s, %s)", NAMESPACE, int(LockKey.ADMISSION)):
        with unless_locked("admission"):
            admit_if_changed()
        assert fresh(request).status == S.QUEUED
        assert LOCKS_REFUSED_TOTAL.labels("cycle")._value.get() == before + 1
        assert not fresh(request).last_error, "nothing broke"
    world.evaluate(request)
    assert fresh(request).status == S.ACTIVE


def test_sessions_have_limits() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')")
        assert cursor.fetchone() == ("10s", "1min")


def test_a_lock_that_is_not_given_is_told_apart_from_a_database_that_is_away() -> None:
    request = request_row(S.QUEUED)
    with paused("SELECT 1 FROM requests WHERE id = %s FOR UPDATE", request.pk), transaction.atomic():
        connection.cursor().execute("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(OperationalError) as refused, transaction.atomic():
            Request.objects.select_for_update().get(pk=request.pk)
        assert lock_refused(refused.value)
    assert not lock_refused(OperationalError("the connection is lost"))


@pytest.fixture(name="impatient")
def _impatient() -> Iterator[None]:
    """Locks that are not given at once are refused."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
        yield
        cursor.execute("RESET lock_timeout")


@pytest.mark.usefixtures("impatient")
def test_a_verb_on_a_locked_row_is_told_to_come_back() -> None:
    request = request_row(S.QUEUED)
    olga = User.objects.create_superuser("olga")
    rest, pages = APIClient(), Client()
    rest.force_authenticate(olga)
    pages.force_login(olga)
    page = f"/admin/requests_app/request/verb/hold/?id={request.pk}"
    data = {"id": str(request.pk), "seen": S.QUEUED, "reason": "not yet"}
    with paused("SELECT 1 FROM requests WHERE id = %s FOR UPDATE", request.pk):
        refused = rest.post(f"/api/v1/requests/{request.request_name}/hold", {"reason": "not yet"})
        reported = problem(refused, 503, "being_changed")
        assert "being changed just now" in reported["detail"]
        assert int(refused["Retry-After"]) > 0
        answer = pages.post(page, data)
        assert answer.status_code == 409
        assert "being changed just now" in answer.content.decode()
    assert fresh(request).status == S.QUEUED
    assert pages.post(page, data).status_code == 302
    assert fresh(request).status == S.HELD


def test_a_verb_does_not_wait_for_the_rows_of_a_plan(world: World) -> None:
    """The plan's transaction is kept at its last bulk insert; the operation comes in between, and the plan is taken back."""
    request = world.request(documents.generation(100))
    ended = threading.Event()

    def plan() -> None:
        evaluate_one(request.pk)
        ended.set()

    world.evaluate(request, steps=1)
    assert admit_if_changed() == 1
    with paused("LOCK TABLE work_unit_claims IN SHARE MODE"):
        planner = aside(plan)
        until(lambda: _waits_for("work_unit_claims"), "the plan is inserting its claims", seconds=30)
        request_hold(request=fresh(request), actor="olga", reason="not yet")
        assert fresh(request).status == S.HELD
    planner.join(30)
    assert ended.is_set()
    assert fresh(request).status == S.HELD
    assert not DAG.objects.exclude(status=DAGStatus.REMOVED).exists(), "a plan that came too late is not kept"


def _waits_for(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass", [table])
        return bool(cursor.fetchone()[0])
