"""What operators may do to a request, whatever else happens at that moment."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.db import connection

from dags_app.models import DAGStatus
from requests_app.lease import evaluating
from requests_app.models import Request, RequestStatus
from requests_app.services import request_abort, request_hold, request_release
from tests.support.locking import aside
from tests.support.rows import dag_row, request_row, workflow_row
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wms2.runtime.notify._send", lambda name, args: None)


def stored(request: Request) -> Request:
    return Request.objects.get(pk=request.pk)


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("action", [request_abort, request_hold])
def test_a_dag_recorded_at_the_very_moment_of_a_verb_is_stopped_and_not_left_behind(action: Callable[..., None]) -> None:
    request = request_row(S.PLANNING)
    workflow = workflow_row(request)
    with evaluating(request.pk, owner="planner") as evaluation:
        assert evaluation is not None
        with evaluation.fenced():
            operator = aside(lambda: action(request=stored(request), actor="op", reason="now"))
            while not somebody_waits_for_a_lock():
                assert operator.is_alive()
                time.sleep(0.01)
            dag_row(workflow, DAGStatus.READY)
        operator.join()
    assert stored(request).status == S.STOPPING


def test_a_verb_acts_on_the_request_as_it_is_not_as_a_page_showed_it() -> None:
    shown = request_row(S.QUEUED)
    dag_row(workflow_row(shown), DAGStatus.RUNNING)
    Request.objects.filter(pk=shown.pk).update(status=S.ACTIVE)
    request_abort(request=shown, actor="op", reason="enough")
    assert stored(shown).status == S.STOPPING
    assert AuditEntry.objects.get(action="request_abort").evidence == {"old": "active", "new": "stopping"}


@pytest.mark.parametrize("ended", [S.COMPLETED, S.FAILED, S.ARCHIVED])
def test_what_has_ended_cannot_be_aborted_or_held_and_the_refusal_is_audited(ended: RequestStatus) -> None:
    request = request_row(ended)
    for action in (request_abort, request_hold, request_release):
        with pytest.raises(InvalidTransition):
            action(request=request, actor="op", reason="too late")
    assert stored(request).status == ended
    assert set(AuditEntry.objects.values_list("action", "outcome")) == {
        ("request_abort", "refused"), ("request_hold", "refused"), ("request_release", "refused"),
    }  # fmt: skip
