"""The admin's page for importing requests: what it takes, what it says of what it does not take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from requests_app.models import Request, RequestStatus
from tests.support.html import links, text
from tests.support.stack import small_request
from wms2.models import AuditEntry

PAGE = "/admin/requests_app/request/import/"


def send(client: Client, **data: Any) -> Any:
    return client.post(PAGE, {"submit": "on", **data})


@pytest.mark.django_db
def test_the_ways_to_it_are_for_operators(operator: Client, staff: Client) -> None:
    for page in ("/", "/requests/", "/admin/requests_app/request/"):
        assert PAGE in links(operator.get(page).content.decode())
        assert PAGE not in links(staff.get(page).content.decode())
    assert staff.get(PAGE).status_code == 403
    assert "Import a request" in text(operator.get(PAGE).content.decode())


@pytest.mark.simulators
@pytest.mark.parametrize("as_file", [True, False])
def test_a_document_is_imported_and_one_lands_on_its_page(ready: None, operator: Client, as_file: bool) -> None:
    content = json.dumps(small_request())
    given = {"file": SimpleUploadedFile("doc.json", content.encode())} if as_file else {"document": content}
    response = send(operator, priority="77", **given)
    row = Request.objects.get()
    assert (response.status_code, response["Location"]) == (302, row.get_absolute_url())
    assert (row.status, row.priority) == (RequestStatus.SUBMITTED, 77)
    assert AuditEntry.objects.get(action="request_import").actor == "olga"
    again = text(send(operator, document=content).content.decode())
    assert "Refused; nothing was stored." in again
    assert f"{row.request_name} is known already and is submitted" in again
    assert f"Already here: {row.request_name}, Submitted." in again


@pytest.mark.simulators
def test_an_operator_declares_there_whose_datasets_it_may_write(ready: None, operator: Client) -> None:
    document = json.dumps(small_request())
    send(operator, document=document)
    first = Request.objects.get()
    second = {"document": document, "request_name": f"{first.request_name}_recovery"}
    assert "or declare with family_of" in text(send(operator, **second).content.decode())
    assert "say why" in text(send(operator, **second, family_of=first.request_name).content.decode())
    second |= {"family_of": first.request_name, "family_reason": "a recovery"}
    assert send(operator, **second).status_code == 302
    assert Request.objects.get(request_name=second["request_name"]).family == first.family
    assert AuditEntry.objects.get(action="request_import", evidence__family_of=first.request_name).reason == "a recovery"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({}, "Give a name at ReqMgr2, or a document."),
        ({"document": "{"}, "no JSON document"),
        ({"document": "[1]"}, "document"),
        ({"document": '{"a": 1, "a": 2}'}, "given twice"),
        ({"document": json.dumps({"RequestType": "Odd"})}, "RequestType"),
        ({"document": "{}", "file": SimpleUploadedFile("doc.json", b"{}")}, "not both"),
    ],
)
def test_what_cannot_be_taken_is_told_and_nothing_is_stored(operator: Client, given: dict[str, Any], reported: str) -> None:
    response = send(operator, **given)
    assert response.status_code == 400
    assert reported in text(response.content.decode())
    assert not Request.objects.exists()
