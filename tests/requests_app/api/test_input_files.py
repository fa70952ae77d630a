"""Input files that wait or were left out, over REST, on the page and in the admin; letting them in again."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from requests_app.models import Event, InputFile, Request, RequestStatus, Workflow
from requests_app.services.input_files import restore_refused
from tests.support.problems import problem
from tests.support.rows import input_spec, request_row, workflow_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
S = RequestStatus


@pytest.fixture
def request_() -> Request:
    request = request_row(S.ACTIVE)
    workflow = workflow_row(request, input_spec())
    Workflow.objects.filter(pk=workflow.pk).update(input_dataset="/Primary/Era-v1/RAW")
    now = timezone.now()
    for name, changes in {
        "fine": {},
        "waits": {"waiting_since": now, "waiting_reason": "no replica at any site"},
        "lost": out("lost", "could not be read at T2_CH_CERN and T1_US_FNAL"),
        "left": out("operator", "excluded by olga: broken", "olga"),
        "unwanted": out("unwanted", "no lumi of the file survives"),
    }.items():
        InputFile.objects.create(workflow=workflow, lfn=lfn(name), block_name="/a/b/C#1", size_bytes=1, events=10, **changes)
    return request


def out(kind: str, reason: str, by: str = "planner") -> dict[str, Any]:
    return {"excluded_at": timezone.now(), "excluded_kind": kind, "excluded_reason": reason, "excluded_by": by}


def lfn(name: str) -> str:
    return f"/store/data/{name}.root"


def restore(client: APIClient, request: Request, *names: str) -> Any:
    url = f"/api/v1/requests/{request.request_name}/restore-files"
    return client.post(url, {"files": [lfn(name) for name in names], "reason": "repaired"}, format="json")


def test_they_are_listed_with_reason_who_and_when(reader: APIClient, request_: Request) -> None:
    body = reader.get(f"/api/v1/requests/{request_.request_name}/input-files").json()
    assert (body["waiting_files"], body["excluded_files"], body["unwanted_files"]) == (1, 2, 1)
    (waiting,) = body["waiting"]
    assert (waiting["lfn"], waiting["waiting_reason"]) == (lfn("waits"), "no replica at any site")
    assert waiting["waiting_since"]
    listed = {row["lfn"]: (row["excluded_kind"], row["excluded_by"]) for row in body["excluded"]}
    assert listed == {lfn("left"): ("operator", "olga"), lfn("lost"): ("lost", "planner")}
    assert all(row["excluded_at"] and row["excluded_reason"] for row in body["excluded"])


def test_the_page_shows_them(django_user_model: Any, client: Client, request_: Request) -> None:
    client.force_login(django_user_model.objects.create_user("rita"))
    page = client.get(f"/requests/{request_.request_name}/").content.decode()
    assert "1 input file without a site" in page
    assert f"{lfn('waits')} <span" in page
    assert "2 input files left out" in page
    assert "excluded by olga: broken" in page


def test_an_exclusion_is_lifted_with_a_reason_and_audited(operator: APIClient, request_: Request) -> None:
    for _ in range(2):  # repeatable
        assert restore(operator, request_, "lost").status_code == 202
    row = InputFile.objects.get(lfn=lfn("lost"))
    assert (row.excluded_at, row.excluded_kind, row.excluded_reason) == (None, "", "")
    assert row.restored_at is not None
    assert Event.objects.get(kind="input.restored").data["files"] == [lfn("lost")]
    audited = AuditEntry.objects.filter(action="input_files_restore", outcome="done")
    assert [entry.reason for entry in audited] == ["repaired", "repaired"]


@pytest.mark.parametrize(
    ("names", "why"), [(("lost", "unwanted"), "for the same reason"), (("lost", "strange"), "not among its input files")]
)
def test_what_cannot_be_let_in_is_refused_as_a_whole(
    operator: APIClient, request_: Request, names: tuple[str, ...], why: str
) -> None:
    assert why in problem(restore(operator, request_, *names), 409, "invalid_transition")["detail"]
    assert InputFile.objects.get(lfn=lfn("lost")).excluded_kind == "lost"


def test_nothing_is_let_in_at_the_end(operator: APIClient, request_: Request) -> None:
    Request.objects.filter(pk=request_.pk).update(status=S.COMPLETED)
    problem(restore(operator, request_, "lost"), 409, "invalid_transition")
    assert InputFile.objects.get(lfn=lfn("lost")).excluded_kind == "lost"


def test_the_admin_offers_it_where_it_can_be_done(request_: Request) -> None:
    offered = {row.lfn: not restore_refused(row) for row in InputFile.objects.all()}
    assert offered == {lfn("fine"): False, lfn("waits"): False, lfn("unwanted"): False, lfn("lost"): True, lfn("left"): True}
