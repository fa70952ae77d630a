"""Operations on a request: priority, submit, abort, hold, release. Each has a reason, may be repeated, and is refused with
words.
"""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from requests_app import services, states
from requests_app.limits import limits_now
from requests_app.models import Request, RequestStatus, RequestTransition, StopIntent
from requests_app.services import decisions
from requests_app.work.overrides import limits_of, max_rescues, overrides_of, pass_fraction, pins_of
from tests.support.cases import in_one_test
from tests.support.problems import problem
from tests.support.rows import request_row, workflow_row
from wms2.errors import StaleState
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus


def url(request: Request, action: str = "") -> str:
    return f"/api/v1/requests/{request.request_name}{'/' + action if action else ''}"


def fresh(request: Request) -> Request:
    return Request.objects.get(pk=request.pk)


def test_the_priority_is_changed_and_audited_with_its_reason(operator: APIClient) -> None:
    request = request_row(S.QUEUED, priority=100)
    body = operator.patch(url(request), {"priority": 900, "reason": "for the conference"})
    assert (body.status_code, body.json()["priority"]) == (200, 900)
    assert fresh(request).priority == 900
    entry = AuditEntry.objects.get(target=request.request_name)
    assert (entry.actor, entry.action, entry.reason) == ("olga", "request_set_priority", "100 -> 900: for the conference")


def test_the_same_priority_again_changes_nothing(operator: APIClient) -> None:
    request = request_row(S.QUEUED, priority=100)
    assert operator.patch(url(request), {"priority": 100}).status_code == 200
    assert not AuditEntry.objects.exists()


def test_a_new_request_is_submitted_by_patch_and_a_second_time_is_the_same(operator: APIClient) -> None:
    request = request_row(S.NEW)
    for _ in range(2):
        response = operator.patch(url(request), {"status": "submitted"})
        assert (response.status_code, response.json()["status"]) == (200, "submitted")
    assert RequestTransition.objects.filter(request=request).count() == 1


def test_what_has_gone_on_is_not_submitted_again(operator: APIClient) -> None:
    problem(operator.patch(url(request_row(S.ACTIVE)), {"status": "submitted"}), 409, "invalid_transition")


@in_one_test(
    "status, words",
    [("aborted", "DELETE"), ("held", "/hold"), ("queued", "/release"), ("active", "life cycle"), ("completed", "life cycle")],
    rows=True,
)
def test_any_other_status_is_refused_and_the_verb_is_named(operator: APIClient, status: str, words: str) -> None:
    request = request_row(S.SUBMITTED)
    assert words in problem(operator.patch(url(request), {"status": status}), 400, "invalid", field="status")["detail"]
    assert fresh(request).status == S.SUBMITTED


@in_one_test(
    "body, field",
    [
        ({}, "priority"),
        ({"reason": "r"}, "priority"),
        ({"priority": None}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": 1_000_000}, "priority"),
        ({"priority": 10**30}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"status": "sleeping"}, "status"),
        ({"status": 3}, "status"),
        ({"priority": 1, "reason": ""}, "reason"),
        ({"priority": 1, "reason": "x" * 2001}, "reason"),
        ({"priority": 1, "campaign": "C"}, "campaign"),
        ({"hold_code": ""}, "hold_code"),
        ({"confirm": True}, "priority"),
        ({"production_steps": "soon"}, "production_steps"),
        ({"production_steps": [{"fraction": 0.5, "priority": 10**6}]}, "production_steps.0.priority"),
        ({"production_steps": [{"fraction": 1.5, "priority": 1}]}, "production_steps"),
    ],
    rows=True,
)
def test_a_wrong_patch_is_400_and_changes_nothing(operator: APIClient, body: dict[str, Any], field: str) -> None:
    request = request_row(S.NEW, priority=5)
    problem(operator.patch(url(request), body), 400, "invalid", field=field)
    assert (fresh(request).priority, fresh(request).status) == (5, S.NEW)


def test_production_steps_are_changed_by_patch_and_taken_away(operator: APIClient) -> None:
    request = request_row(S.QUEUED)
    steps = [{"fraction": 0.1, "priority": 80000}, {"fraction": 0.5, "priority": 50000}]
    for _ in range(2):
        body = operator.patch(url(request), {"production_steps": steps, "reason": "fair share"})
        assert (body.status_code, body.json()["production_steps"]) == (200, steps)
    assert AuditEntry.objects.get(action="request_set_steps").reason == "fair share"
    assert operator.patch(url(request), {"production_steps": []}).json()["production_steps"] == []
    problem(operator.patch(url(request_row(S.FAILED)), {"production_steps": steps}), 409, "invalid_transition")


def test_what_runs_at_once_is_limited_while_a_request_runs(operator: APIClient) -> None:
    request = request_row(S.ACTIVE, overrides={"memory_mb": 2500, "max_merge": 4})
    limits = {"max_merge_groups": 3, "max_processing": 40, "reason": "a small site"}
    assert operator.post(url(request, "throttle"), limits).status_code == 202
    assert fresh(request).overrides == {"memory_mb": 2500, "max_merge_groups": 3, "max_processing": 40}
    problem(operator.post(url(request, "throttle"), {"max_merge": 0, "reason": "r"}), 400, "invalid", field="max_merge")
    assert operator.post(url(request, "throttle"), {"reason": "enough room"}).status_code == 202
    assert fresh(request).overrides == {"memory_mb": 2500}


def test_abort_is_accepted_at_once_and_may_be_repeated(operator: APIClient) -> None:
    request = request_row(S.QUEUED)
    for _ in range(2):
        response = operator.delete(url(request) + "?reason=not needed")
        assert (response.status_code, response.json()["status"]) == (202, "aborted")
    (transition,) = RequestTransition.objects.filter(request=request)
    assert (transition.actor, transition.reason) == ("olga", "not needed")


def test_abort_takes_its_reason_from_a_body_too(operator: APIClient) -> None:
    request = request_row(S.QUEUED)
    assert operator.delete(url(request), {"reason": "not needed"}).status_code == 202
    assert RequestTransition.objects.get(request=request).reason == "not needed"


def test_aborting_what_runs_stops_it_first(operator: APIClient) -> None:
    request = request_row(S.ACTIVE)
    workflow_row(request)
    body = operator.delete(url(request) + "?reason=r").json()
    assert (body["status"], body["stop_intent"]) == ("stopping", "abort")


def test_hold_and_release_go_there_and_back_and_may_each_be_repeated(operator: APIClient) -> None:
    request = request_row(S.QUEUED)
    workflow_row(request)
    for _ in range(2):
        body = operator.post(url(request, "hold"), {"reason": "look at it"})
        assert (body.status_code, body.json()["status"], body.json()["hold_reason"]) == (202, "held", "look at it")
    for _ in range(2):
        body = operator.post(url(request, "release"), {"reason": "looked at"})
        assert (body.status_code, body.json()["status"], body.json()["hold_code"]) == (202, "queued", "")
    assert RequestTransition.objects.filter(request=request).count() == 2


def test_a_release_that_somebody_else_did_is_not_taken_for_ours(operator: APIClient) -> None:
    request = request_row(S.HELD)
    workflow_row(request)
    services.request_release(request=request, actor="anna", reason="r")
    problem(operator.post(url(request, "release"), {"reason": "r"}), 409, "invalid_transition")


def test_a_verb_means_the_request_as_it_is_by_now(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The life cycle moves the request between our reading it and our writing: the operation is applied to what it found."""
    request = request_row(S.SUBMITTED)
    real, moved = decisions.recorded_operation, []

    def begin(*asked: Any, **more: Any) -> Any:
        if not moved:
            moved.append(True)
            states.transition(fresh(request), S.QUEUED, actor="lifecycle", reason="meanwhile")
        return real(*asked, **more)

    monkeypatch.setattr(decisions, "recorded_operation", begin)
    response = operator.post(url(request, "hold"), {"reason": "r"})
    assert (response.status_code, response.json()["status"]) == (202, "held")


def test_a_request_that_never_stands_still_is_409(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: Any, **more: Any) -> Any:
        raise StaleState("moving")

    monkeypatch.setattr(decisions, "recorded_operation", begin)
    problem(operator.post(url(request_row(S.QUEUED), "hold"), {"reason": "r"}), 409, "stale_state")


@in_one_test("action", ["hold", "release"], rows=True)
@in_one_test(
    "body, field",
    [({}, "reason"), ({"reason": ""}, "reason"), ({"reason": "  "}, "reason"), ({"reason": None}, "reason"),
     ({"reason": {"a": 1}}, "reason"), ({"reason": "x" * 2001}, "reason"), ({"reason": "r", "force": True}, "force")],
    rows=True,
)  # fmt: skip
def test_a_verb_without_a_proper_reason_is_400(operator: APIClient, action: str, body: dict[str, Any], field: str) -> None:
    request = request_row(S.HELD)
    problem(operator.post(url(request, action), body), 400, "invalid", field=field)
    assert fresh(request).status == S.HELD


@in_one_test("query", ["", "?reason=", "?reason=%20", "?reason=a%00b", "?why=r"], rows=True)
def test_an_abort_without_a_proper_reason_is_400(operator: APIClient, query: str) -> None:
    request = request_row(S.QUEUED)
    assert operator.delete(url(request) + query).status_code == 400
    assert fresh(request).status == S.QUEUED


@pytest.mark.parametrize(("method", "action"), [("patch", ""), ("delete", ""), ("post", "hold"), ("post", "release")])
def test_operations_on_what_is_not_there_are_404(operator: APIClient, method: str, action: str) -> None:
    path = "/api/v1/requests/not_there" + (f"/{action}" if action else "")
    query = "?reason=r" if method == "delete" else ""
    body = {"priority": 1} if method == "patch" else {"reason": "r"}
    problem(getattr(operator, method)(path + query, body), 404, "not_found")


def test_a_long_user_name_fits_into_the_audit(operator: APIClient) -> None:
    from django.contrib.auth.models import User

    client = APIClient()
    client.force_authenticate(User.objects.create_superuser("u" * 150))
    assert client.post(url(request_row(S.QUEUED), "hold"), {"reason": "r"}).status_code == 202
    assert RequestTransition.objects.get().actor == "u" * 100


def test_intents_only_grow_stronger(operator: APIClient) -> None:
    request = request_row(S.STOPPING, stop_intent=StopIntent.HOLD)
    assert operator.delete(url(request) + "?reason=r").json()["stop_intent"] == "abort"
    assert operator.post(url(request, "hold"), {"reason": "r"}).json()["stop_intent"] == "abort"


def test_what_is_asked_for_together_is_all_done_or_not_at_all(operator: APIClient) -> None:
    request = request_row(S.NEW, priority=100)
    wanted = {"status": "submitted", "priority": 900, "reason": "now"}
    assert operator.patch(url(request), wanted).status_code == 200
    assert (fresh(request).status, fresh(request).priority) == (S.SUBMITTED, 900)
    old = request_row(S.NEW, request_name="old")
    waiting = request_row(S.NEW, previous_version_request=old, priority=100)
    steps = [{"fraction": 0.1, "priority": 1}]
    problem(operator.patch(url(waiting), {"production_steps": steps, **wanted}), 409, "invalid_transition")
    assert (fresh(waiting).priority, fresh(waiting).production_steps) == (100, [])


def test_a_later_refusal_takes_back_what_the_same_change_did_before(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_row(S.ACTIVE, priority=100)
    workflow_row(request)
    monkeypatch.setattr("requests_app.services.decisions.share_done", lambda _: 0.5)
    body = {"priority": 900, "production_steps": [{"fraction": 0.1, "priority": 1}], "reason": "both"}
    problem(operator.patch(url(request), body), 409, "invalid_transition")
    assert fresh(request).priority == 100
    assert list(AuditEntry.objects.values_list("action", "outcome")) == [("request_change", "refused")]


def test_a_body_beside_the_query_of_an_abort_is_read_too(operator: APIClient) -> None:
    request = request_row(S.QUEUED)
    problem(operator.delete(url(request) + "?reason=r", {"request": "another"}), 400, "invalid", field="request")
    problem(operator.delete(url(request) + "?reason=r", {"reason": "s"}), 400, "invalid", field="reason")
    assert fresh(request).status == S.QUEUED
    assert operator.delete(url(request) + "?reason=r", {"reason": "r"}).status_code == 202


def test_error_limits_are_changed_while_it_runs_and_hold_from_then_on(operator: APIClient) -> None:
    request = workflow_row(request_row(S.ACTIVE)).request
    url = f"/api/v1/requests/{request.request_name}/error-limits"
    limits = {"error_hold_threshold": 0.5, "error_max_rescue_attempts": 7, "retry_processing": 2, "pass_fraction": 0.9}
    assert operator.post(url, {**limits, "reason": "half of the sites are down"}).status_code == 202
    request.refresh_from_db()
    assert (request.status, request.overrides) == (S.ACTIVE, limits)
    threshold = limits_of(request, limits_now()).error_hold_threshold
    assert (threshold, max_rescues(request), pass_fraction(request, "AOD")) == (0.5, 7, 0.9)
    assert operator.post(url, {"max_excluded_fraction": 0.1, "reason": "only that"}).status_code == 202
    request.refresh_from_db()
    share = limits_of(request, limits_now()).max_excluded_fraction
    assert (request.overrides, share) == ({"max_excluded_fraction": 0.1}, 0.1)
    problem(operator.post(url, {"error_hold_threshold": 1.5, "reason": "x"}), 400, "invalid", field="error_hold_threshold")


def test_a_pin_below_the_bound_of_this_release_counts_as_the_bound_and_can_be_changed(operator: APIClient) -> None:
    request = workflow_row(request_row(S.ACTIVE, overrides={"memory_mb": 50, "max_merge": 3})).request
    assert (pins_of(request).memory_mb, overrides_of(request).max_merge) == (100, 3)
    url = f"/api/v1/requests/{request.request_name}"
    problem(operator.post(f"{url}/pin", {"memory_mb": 99, "reason": "less"}), 400, "invalid", field="memory_mb")
    assert operator.post(f"{url}/throttle", {"max_merge": 4, "reason": "more"}).status_code == 202
    assert operator.post(f"{url}/pin", {"memory_mb": 1900, "reason": "as measured"}).status_code == 202
    assert pins_of(fresh(request)).memory_mb == 1900
