"""What is told about a request and about an operation: every status, hold code and alert has its sentences."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from dags_app.models import DAG, DAGStatus, WorkUnitState
from dags_app.services.stop import StopMode
from deploy.stack import paths
from requests_app.models import HoldCode, Request, RequestStatus, StopIntent
from requests_app.selectors.explain import explain
from requests_app.services import preview, request_abort, request_hold, request_release, request_submit
from requests_app.services.decisions import abort_refused, hold_refused, submit_refused
from requests_app.services.release import release_refused
from tests.support.cases import in_one_test
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from wms2.errors import InvalidTransition

S = RequestStatus
NOW = datetime(2026, 9, 4, 12, tzinfo=UTC)


def request(status: S, **fields: object) -> Request:
    held = {"hold_code": HoldCode.OPERATOR, "hold_reason": "wait"} if status == S.HELD else {}
    return Request(request_name="r", status=status, **{"stop_intent": StopIntent.ABORT} | held | fields)  # type: ignore[arg-type]


@in_one_test("status", S)
def test_every_status_says_what_happens_next(status: S) -> None:
    assert explain(request(status)).next.endswith(".")


@in_one_test("intent", StopIntent)
def test_every_stop_says_what_comes_of_it(intent: StopIntent) -> None:
    assert "once queue and history prove it gone" in explain(request(S.STOPPING, stop_intent=intent)).next


def test_a_drain_is_not_told_as_a_removal() -> None:
    drained = DAG(stop_mode=StopMode.DRAIN)
    goes_on = explain(request(S.STOPPING, stop_intent=StopIntent.RESUME), dag=drained).next
    assert goes_on == (
        "Work units that run finish first, no other starts; once queue and history prove its DAG gone, it goes on from its"
        " rescue file."
    )
    aborted = explain(request(S.STOPPING, stop_intent=StopIntent.ABORT), dag=drained).next
    assert aborted.startswith("Its DAG is being removed;"), "who ends a request does not wait for its units"


@in_one_test("code", HoldCode)
def test_every_hold_says_why_and_what_to_do(code: HoldCode) -> None:
    reported = explain(request(S.HELD, hold_code=code, hold_reason="because of it"))
    assert reported.why == f"{code.label}: because of it"
    assert reported.todo


def test_every_alert_of_the_runbook_says_what_to_do() -> None:
    text = (paths.checkout() / "docs/runbook.md").read_text().partition("\n## Alerts")[2].partition("\n## ")[0]
    codes = re.findall(r"^### `([^`]+)`$", text, flags=re.M)
    assert len(codes) > 10
    for code in codes:
        reported = explain(request(S.ACTIVE, alert_code=code))
        assert reported.todo, code
        assert reported.alert.endswith("."), code
        assert reported.alert != code


def test_a_pause_after_a_failure_is_told_with_its_end() -> None:
    row = request(S.QUEUED, next_attempt_at=NOW + timedelta(minutes=4), last_error="dbs files: no answer")
    assert explain(row, NOW).why == "dbs files: no answer (next attempt in 4 min)"
    assert explain(row, NOW + timedelta(minutes=5)).why == ""


VERBS = {
    "submit": (submit_refused, request_submit), "hold": (hold_refused, request_hold),
    "release": (release_refused, request_release), "abort": (abort_refused, request_abort),
}  # fmt: skip


@pytest.mark.django_db
@in_one_test("status", S, rows=True)
@in_one_test("action", VERBS, rows=True)
def test_what_is_said_to_be_refused_is_refused_and_nothing_else(action: str, status: S) -> None:
    """Except what is idempotent: done twice it is done once, and the page says that it is done already."""
    why_not, service = VERBS[action]
    row = request_row(status)
    reported, before = why_not(row), row.status
    try:
        service(request=row, actor="tester", reason="for the test")
    except InvalidTransition:
        assert reported
    else:
        row.refresh_from_db()
        assert bool(reported) == (row.status == before and row.stop_intent in ("", StopIntent.ABORT))


@pytest.mark.django_db
def test_an_abort_of_a_running_request_names_its_job_and_what_is_kept() -> None:
    row = request_row(S.ACTIVE)
    dag = dag_row(workflow_row(row), schedd_name="schedd@a", dagman_cluster_id="7")
    unit_row(dag, 0, state=WorkUnitState.DONE, manifest_sha256="a", fence=1)
    unit_row(dag, 1)
    (reported,) = preview.abort([row]).values()
    assert reported[0] == "Its DAG is removed (DAGMan job 7 at schedd@a); jobs that run now are lost."
    assert reported[1] == "1 of 2 work units are done and stay registered."


@pytest.mark.django_db
def test_a_dag_whose_submission_is_not_recorded_is_told_as_such() -> None:
    row = request_row(S.PLANNING)
    dag_row(workflow_row(row), DAGStatus.READY)
    assert "its submission is not recorded yet" in preview.hold([row])[row.pk][0]


@pytest.mark.django_db
def test_many_requests_cost_as_many_queries_as_one(django_assert_num_queries: object) -> None:
    rows = [request_row(S.ACTIVE) for _ in range(5)]
    for row in rows:
        dag_row(workflow_row(row))
    with django_assert_num_queries(3):  # type: ignore[operator]
        assert len(preview.abort(rows)) == 5
