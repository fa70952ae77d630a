"""Groups and dependencies over REST: what is shown, filtered and asked for."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from requests_app.models import Request, RequestStatus
from tests.support.rows import request_row

pytestmark = pytest.mark.django_db
S = RequestStatus
URL = "/api/v1/requests"


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wms2.runtime.notify._send", lambda name, args: None)


def put(client: APIClient, request: Request, **body: object) -> object:
    return client.post(f"{URL}/{request.request_name}/group", {"reason": "one sample", **body}, format="json")


def test_a_group_is_made_shown_listed_and_dissolved(operator: APIClient, reader: APIClient) -> None:
    first, second = request_row(S.ACTIVE, request_name="first"), request_row(S.ABORTED, request_name="second")
    Request.objects.filter(pk=second.pk).update(status=S.ACTIVE)
    for row in (first, second):
        answer = put(operator, row, in_group="sample")
        assert (answer.status_code, answer.json()["in_group"]) == (202, "sample")
    Request.objects.filter(pk=second.pk).update(status=S.ABORTED)
    shown = reader.get("/api/v1/groups/sample").json()
    assert (shown["status"], shown["waiting_for"], shown["note"]) == ("active", "first", "one sample")
    assert [(child["request_name"], child["there"], child["skipped"]) for child in shown["children"]] == [
        ("first", False, False), ("second", False, True),
    ]  # fmt: skip
    (line,) = reader.get("/api/v1/groups").json()["results"]
    assert line["name"] == "sample"
    assert {row["request_name"] for row in reader.get(URL, {"in_group": "sample"}).json()["results"]} == {"first", "second"}
    assert operator.post("/api/v1/groups/sample/dissolve", {"reason": "apart"}, format="json").json()["status"] == "empty"
    assert reader.get(f"{URL}/first").json()["in_group"] is None


def test_what_a_request_depends_on_is_changed_shown_and_filtered(operator: APIClient, reader: APIClient) -> None:
    parent, child = request_row(request_name="parent"), request_row(request_name="child")
    path = f"{URL}/child/depend"
    answer = operator.post(path, {"reason": "reads it", "depends_on": ["parent"]}, format="json")
    assert (answer.status_code, answer.json()["depends_on"]) == (202, ["parent"])
    assert reader.get(f"{URL}/{parent.request_name}").json()["dependents"] == ["child"]
    assert [row["request_name"] for row in reader.get(URL, {"depends_on": "parent"}).json()["results"]] == ["child"]
    refused = operator.post(f"{URL}/parent/depend", {"reason": "r", "depends_on": ["child"]}, format="json")
    assert (refused.status_code, "parent -> child -> parent" in refused.content.decode()) == (422, True)
    assert operator.post(path, {"reason": "alone"}, format="json").json()["depends_on"] == []
    assert not child.depends_on.exists()
