"""An operator's remark on a request: declared once, it is over REST, in the admin, on the page and on the command line."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from rest_framework.test import APIClient

from requests_app.models import Event, Request, RequestStatus
from tests.support.html import links, text
from tests.support.rows import request_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
VERB = "/admin/requests_app/request/verb/note/"


def notes(request: Request) -> str:
    return Request.objects.values_list("notes", flat=True).get(pk=request.pk)


def test_it_is_put_over_rest_shown_and_taken_away(admin_user: object) -> None:
    rest = APIClient()
    rest.force_authenticate(admin_user)  # type: ignore[arg-type]
    request = request_row(RequestStatus.QUEUED)
    address = f"/api/v1/requests/{request.request_name}"
    before = rest.get(address)["ETag"]
    answer = rest.post(f"{address}/note", {"reason": "r", "notes": "ask Olga first"}, headers={"If-Match": before})
    assert (answer.status_code, answer.json()["notes"]) == (202, "ask Olga first")
    assert answer["ETag"] != before
    assert rest.get("/api/v1/requests").json()["results"][0]["notes"] == "ask Olga first"
    assert rest.post(f"{address}/note", {"reason": "r", "notes": "ask Olga first"}).status_code == 202
    assert Event.objects.filter(request=request, kind="request.note").count() == 1, "done twice it is done once"
    assert rest.post(f"{address}/note", {"reason": "r", "notes": "x" * 2001}).status_code == 400
    assert rest.post(f"{address}/note", {"reason": "r", "notes": ""}).status_code == 202
    assert notes(request) == ""


def test_it_is_a_button_with_a_preview_that_starts_with_the_remark_there_is(admin_client: Client) -> None:
    request = request_row(RequestStatus.COMPLETED, notes="ask Olga first")
    page = admin_client.get(f"/requests/{request.request_name}/").content.decode()
    assert "Note: ask Olga first" in text(page)
    assert any(link.startswith(VERB) for link in links(page))
    asked = admin_client.get(VERB, {"id": request.pk}).content.decode()
    assert "WMS2 does not act on" in text(asked)
    assert "ask Olga first</textarea>" in asked
    form = {"id": request.pk, "seen": "completed {'notes': 'ask Olga first'}", "reason": "because", "notes": "asked"}
    assert admin_client.post(VERB, form).status_code == 302
    assert notes(request) == "asked"
    assert "asked" in text(admin_client.get(f"/admin/requests_app/request/{request.pk}/change/").content.decode())


def test_a_remark_that_another_has_changed_meanwhile_is_not_replaced_unseen(admin_client: Client) -> None:
    request = request_row(RequestStatus.COMPLETED, notes="ask Paul first")
    form = {"id": request.pk, "seen": "completed ask Olga first", "reason": "because", "notes": "asked"}
    admin_client.post(VERB, form)
    assert notes(request) == "ask Paul first"


def test_it_is_a_command_and_stands_in_the_audit() -> None:
    request = request_row(RequestStatus.QUEUED)
    call_command("operate", "request", request.request_name, "note", "--reason", "r", "--notes", "ask Olga", stdout=StringIO())
    assert notes(request) == "ask Olga"
    entry = AuditEntry.objects.get(target=request.request_name)
    assert (entry.action, entry.evidence["notes"]) == ("request_note", "ask Olga")
