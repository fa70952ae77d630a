"""One operation over many rows: begun over REST, done by workers in portions, with a result for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from requests_app import services
from requests_app.models import Request, RequestStatus
from tests.support.problems import problem
from tests.support.rows import request_row
from wms2.models import AuditEntry, BulkItem, BulkRun, ServiceAccount
from wms2.work.bulk import bulk_cancel, bulk_go_on

pytestmark = pytest.mark.django_db
S = RequestStatus
API = "/api/v1"
HELD = f"{API}/bulk/requests/abort?status=held"
WHY = {"reason": "the campaign is over"}


def held(number: int) -> list[Request]:
    return [request_row(S.HELD, request_name=f"held_{i}") for i in range(number)]


def results(run: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item.name: (item.result, item.message) for item in BulkItem.objects.filter(run=run["id"])}


def go_on() -> None:
    bulk_go_on(seconds=60)


def test_all_rows_of_a_filter_are_acted_on_each_with_its_result(operator: APIClient, reader: APIClient) -> None:
    held(3)
    request_row(S.ACTIVE, request_name="runs")
    assert reader.get(HELD).json() == {"rows": 3, "acting": 3, "refused": {}}
    assert reader.post(HELD, WHY).status_code == 403
    answer = operator.post(HELD, {**WHY, "expected": 3}, HTTP_IDEMPOTENCY_KEY="one")
    run = answer.json()
    assert (answer.status_code, run["items"]["waiting"], run["ended_at"]) == (202, 3, None)
    assert operator.post(HELD, {**WHY, "expected": 3}, HTTP_IDEMPOTENCY_KEY="one").json() == run, "asked twice, done once"
    Request.objects.filter(request_name="held_1").update(status=S.FAILED)

    go_on()

    assert results(run) == {
        "held_0": ("done", ""),
        "held_1": ("refused", "It has changed since it was selected: it is Failed now."),
        "held_2": ("done", ""),
    }
    assert dict(Request.objects.values_list("request_name", "status")) == {
        "held_0": S.ABORTED, "held_1": S.FAILED, "held_2": S.ABORTED, "runs": S.ACTIVE,
    }  # fmt: skip
    shown = reader.get(answer["Location"]).json()
    assert (shown["items"]["done"], shown["items"]["refused"], shown["ended_at"] is not None) == (2, 1, True)
    (refused,) = reader.get(f"{API}/bulk-items?run={run['id']}&result=refused").json()["results"]
    assert refused["name"] == "held_1"
    by = AuditEntry.objects.filter(action="request_abort").values_list("actor", "reason")
    assert set(by) == {("olga", WHY["reason"])}


def test_rows_are_named_by_their_keys_and_which_are_meant_is_never_left_open(operator: APIClient) -> None:
    held(2)
    address = f"{API}/bulk/requests/abort"
    assert "all rows are never meant" in problem(operator.post(address, WHY), 400, "invalid")["detail"]
    both = operator.post(HELD, {**WHY, "keys": ["held_0"]})
    assert "not both" in problem(both, 400, "invalid")["detail"]
    unknown = operator.post(address, {**WHY, "keys": ["held_0", "none"]})
    assert "there is no request none" in problem(unknown, 400, "invalid", field="keys")["detail"]
    problem(operator.post(HELD, {**WHY, "expected": 5}), 409, "invalid_transition")
    problem(operator.post(f"{API}/bulk/requests/abort?status=active", WHY), 409, "invalid_transition")
    problem(operator.post(f"{API}/bulk/requests/release?status=held", {**WHY, "mode": "later"}), 400, "invalid", field="mode")
    assert not BulkRun.objects.exists()

    run = operator.post(address, {**WHY, "keys": ["held_1"]}).json()
    go_on()
    assert results(run) == {"held_1": ("done", "")}


def test_what_was_cancelled_goes_no_further(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    held(3)
    run = operator.post(HELD, WHY).json()
    abort = services.request_abort

    def cancelled_meanwhile(**given: Any) -> None:
        abort(**given)
        bulk_cancel(run=BulkRun.objects.get(), actor="olaf", reason="stop it")

    _with(monkeypatch, cancelled_meanwhile)
    go_on()
    assert [result for result, _ in results(run).values()] == ["done", "waiting", "waiting"]
    problem(operator.post(f"{API}/bulk-runs/{run['id']}/cancel", WHY), 409, "invalid_transition")
    assert BulkRun.objects.get().cancelled == "olaf: stop it"


def test_a_run_whose_user_was_deactivated_goes_no_further(operator: APIClient) -> None:
    held(2)
    run = operator.post(HELD, WHY).json()
    User.objects.filter(username="olga").update(is_active=False)
    go_on()
    assert [result for result, _ in results(run).values()] == ["waiting", "waiting"]
    assert BulkRun.objects.get().cancelled == "wms2: the user olga is not active"


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (lambda: User.objects.filter(username="paula").update(is_active=False), "the owner of the service account olga, paula,"),
        (lambda: User.objects.filter(username="paula").delete(), "the owner of the service account olga has left"),
        (lambda: User.objects.filter(username="olga").delete(), "there is no user olga any more"),
    ],
)
def test_a_run_of_a_program_ends_with_whom_it_belongs_to(operator: APIClient, ends: Callable[[], object], why: str) -> None:
    held(2)
    owner, program = User.objects.create_user("paula"), User.objects.get(username="olga")
    ServiceAccount.objects.create(user=program, owner=owner, purpose="test", created_at=timezone.now(), created_by="ada")
    run = operator.post(HELD, WHY).json()
    ends()
    go_on()
    assert [result for result, _ in results(run).values()] == ["waiting", "waiting"]
    assert BulkRun.objects.get().cancelled.startswith(f"wms2: {why}")


def test_an_item_is_done_whole_or_not_at_all_when_its_worker_dies(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    held(2)
    run = operator.post(HELD, WHY).json()
    abort = services.request_abort

    def killed(**given: Any) -> None:
        abort(**given)
        raise SystemExit("the worker is killed")

    with monkeypatch.context() as patch:
        _with(patch, killed)
        with pytest.raises(SystemExit):
            go_on()
    assert set(Request.objects.values_list("status", flat=True)) == {S.HELD}
    go_on()
    assert [result for result, _ in results(run).values()] == ["done", "done"]


def test_one_row_that_breaks_keeps_no_other_from_its_turn(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    held(2)
    run = operator.post(HELD, WHY).json()
    abort = services.request_abort

    def breaks(*, request: Request, **given: Any) -> None:
        abort(request=request, **given)
        if request.request_name == "held_0":
            raise RuntimeError("a defect")

    _with(monkeypatch, breaks)
    go_on()
    assert results(run) == {"held_0": ("broken", "RuntimeError: a defect"), "held_1": ("done", "")}
    assert Request.objects.get(request_name="held_0").status == S.HELD, "nothing is half done"


def test_a_run_of_a_later_release_ends_with_its_reason(operator: APIClient) -> None:
    held(1)
    run = operator.post(HELD, WHY).json()
    BulkRun.objects.update(operation="teleport")
    go_on()
    assert results(run) == {"held_0": ("refused", "this release has no teleport of many (request)")}
    assert BulkRun.objects.get().ended_at is not None


def _with(patch: pytest.MonkeyPatch, service: Any) -> None:
    from dataclasses import replace

    from wms2 import actions

    resource_type = actions.resource_type_of(Request)
    changed = tuple(replace(action, service=service) if action.name == "abort" else action for action in resource_type.actions)
    patch.setitem(actions._RESOURCE_TYPES, Request, replace(resource_type, actions=changed))
