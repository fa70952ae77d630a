"""Stop, release with changes, fail, restart, invalidate over REST: what they answer, what they refuse, and that they repeat."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from requests_app.models import HoldCode, Request, RequestStatus, StopIntent
from sites_app.models import Site
from tests.support.problems import problem
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.stack import small_request

pytestmark = pytest.mark.django_db
S = RequestStatus
WHY = {"reason": "Schedd maintenance window"}


def url(request: Request, action: str) -> str:
    return f"/api/v1/requests/{request.request_name}/{action}"


def active() -> Request:
    request = request_row(S.ACTIVE)
    dag_row(workflow_row(request))
    return request


def test_a_stop_answers_as_the_specification_says_and_repeats(operator: APIClient) -> None:
    request = active()
    body = operator.post(url(request, "stop"), WHY)
    assert body.status_code == 202
    reported = body.json()
    assert (reported["status"], reported["previous_status"], reported["stop_reason"]) == ("stopping", "active", WHY["reason"])
    assert "rescue" in reported["message"]
    again = operator.post(url(request, "stop"), WHY | {"mode": "drain"})
    assert (again.status_code, again.json()["previous_status"]) == (202, "stopping")
    request.refresh_from_db()
    assert request.stop_intent == StopIntent.RESUME
    assert request.workflow.dags.get().stop_mode == "now", "a drain does not take a removal back"


def test_an_unknown_mode_and_an_unknown_field_are_named(operator: APIClient) -> None:
    request = active()
    assert problem(operator.post(url(request, "stop"), WHY | {"mode": "softly"}), 400, "invalid")["field"] == "mode"
    assert problem(operator.post(url(request, "stop"), WHY | {"node": "now"}), 400, "invalid")["field"] == "node"


def test_what_a_release_would_do_is_told_without_doing_it(operator: APIClient) -> None:
    request = _held()
    body = operator.get(url(request, "release"))
    assert (body.status_code, body.json()["mode"], body.json()["units_again"]) == (200, "next_round", 1)
    refused = problem(operator.get(url(request, "release") + "?mode=rescue"), 409, "invalid_transition")
    assert "cannot be rescued" in refused["detail"]
    request.refresh_from_db()
    assert request.status == S.HELD


def test_a_release_with_changes_keeps_them_with_the_request(operator: APIClient) -> None:
    Site.objects.create(name="T2_CH_CERN")
    request = _held()
    changes = {"memory_mb": 2500, "error_hold_threshold": 0.5, "site_bans": ["T2_CH_CERN"], "mode": "next_round"}
    body = operator.post(url(request, "release"), WHY | changes)
    assert (body.status_code, body.json()["status"]) == (202, "queued")
    request.refresh_from_db()
    assert request.overrides == {"memory_mb": 2500, "error_hold_threshold": 0.5}
    assert request.workflow.site_bans.get().site_id == "T2_CH_CERN"
    assert operator.post(url(request, "release"), WHY | changes).status_code == 202, "the answer may have been lost"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"error_hold_threshold": 0}, "error_hold_threshold"),
        ({"retry_processing": 99}, "retry_processing"),
        ({"memory_mb": "much"}, "memory_mb"),
        ({"mode": "again"}, "mode"),
    ],
)
def test_an_impossible_change_is_refused_by_its_field(operator: APIClient, changes: dict[str, Any], field: str) -> None:
    request = _held()
    assert problem(operator.post(url(request, "release"), WHY | changes), 400, "invalid")["field"] == field


def test_an_unknown_site_or_file_changes_nothing(operator: APIClient) -> None:
    request = _held()
    more = WHY | {"memory_mb": 2500}
    answer = operator.post(url(request, "release"), more | {"site_bans": ["T9_XX_Nowhere"]})
    problem(answer, 400, "invalid", field="site_bans")
    problem(operator.post(url(request, "release"), more | {"excluded_files": ["/store/none.root"]}), 409, "invalid_transition")
    request.refresh_from_db()
    assert (request.status, request.overrides) == (S.HELD, {})


def test_a_held_request_is_failed_twice_as_once(operator: APIClient) -> None:
    request = _held()
    for _ in range(2):
        body = operator.post(url(request, "fail"), WHY)
        assert (body.status_code, body.json()["status"]) == (202, "failed")


def test_a_restart_answers_with_the_new_version_and_the_chain_shows_both(operator: APIClient) -> None:
    request = request_row(S.HELD, request_data=small_request(), hold_code=HoldCode.THRESHOLD, hold_reason="x")
    body = operator.post(url(request, "restart"), WHY | {"cleanup_policy": "immediate_cleanup"})
    assert body.status_code == 202, body.json()
    new = body.json()
    assert (new["request_name"], new["status"]) == (f"{request.request_name}_v2", "submitted")
    assert operator.post(url(request, "restart"), WHY).json()["request_name"] == new["request_name"]
    chain = operator.get(url(request, "versions")).json()
    assert chain["current"]["request_name"] == new["request_name"]
    assert chain["current"]["cleanup_policy"] == "immediate_cleanup"
    assert chain["versions"][0]["superseded_by"] == new["request_name"]


def test_a_restart_whose_new_version_would_be_refused_changes_nothing(operator: APIClient) -> None:
    request = request_row(S.HELD, request_data={"RequestType": "StepChain"})
    problem(operator.post(url(request, "restart"), WHY), 422, "document_refused")
    request.refresh_from_db()
    assert (request.status, request.superseded_by_request, Request.objects.count()) == (S.HELD, "", 1)


def test_outputs_are_listed_and_only_unwanted_ones_are_taken_back(operator: APIClient) -> None:
    request = _held()
    body = operator.get(url(request, "invalidation"))
    assert (body.status_code, body.json()["totals"]["rules"]) == (200, 0)
    problem(operator.post(url(request, "invalidate"), WHY), 409, "invalid_transition")
    operator.post(url(request, "fail"), WHY)
    assert operator.post(url(request, "invalidate"), WHY).status_code == 202


def _held() -> Request:
    request = request_row(S.HELD)
    dag = dag_row(workflow_row(request))
    unit_row(dag)
    type(dag).objects.filter(pk=dag.pk).update(status="partial")
    return request
