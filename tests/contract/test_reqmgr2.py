"""What the adapter rests on, asked of a ReqMgr2: the stack's simulator, or the server at REQMGR2_URL (``…/reqmgr2/data``).

A request of its own is made only of a document that is given (REQMGR2_DOCUMENT; on the stack the demo's), and is aborted or
rejected at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.contract import RUN, SERVERS, as_us, credentials, given, server
from tests.support.stack import small_request
from wms2.adapters.http import HttpService
from wms2.adapters.reqmgr2 import ReqMgr2, reqmgr2_fault
from wms2.errors import NotFoundInService, ServiceRejected

pytestmark = pytest.mark.simulators
UNKNOWN = f"wms2_contract_{RUN}_no_such_request"


@pytest.fixture(scope="module", name="url")
def _url() -> str:
    return server("REQMGR2_URL", "WMS2_REQMGR2_URL")


@pytest.fixture(scope="module", name="reqmgr2")
def _reqmgr2(url: str) -> ReqMgr2:
    http = HttpService("reqmgr2", url, timeout_seconds=60.0, credentials=credentials(), fault_parser=reqmgr2_fault)
    return ReqMgr2(http, http)  # nothing here asks for its other database


def call(url: str, method: str, path: str, body: Any = None, **params: Any) -> requests.Response:
    """Without the adapter. The login is a front end's header, which a real one replaces by the certificate's."""
    headers = {"Accept": "application/json", "Cms-Authn-Login": "contract"}
    return requests.request(method, url + path, params=params, json=body, headers=headers, **as_us())


@pytest.fixture(name="made")
def _made(url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A request of this test's own, assigned to nobody."""
    if given("REQMGR2_DOCUMENT"):
        document = json.loads(Path(given("REQMGR2_DOCUMENT")).read_text())
        document = document.get("createRequest", document)
    elif any(given(name) for name in SERVERS):
        pytest.skip("no REQMGR2_DOCUMENT is given to make a request of")
    else:
        request.getfixturevalue("outside_world")
        document = small_request()["createRequest"]
    answer = call(url, "POST", "/request", {**document, "RequestString": f"WMS2Contract{RUN}"})
    assert answer.ok, (answer.status_code, answer.headers.get("X-Error-Detail"), answer.text[:300])
    name = answer.json()["result"][0]["request"]
    yield name
    status = call(url, "GET", "/request", name=name).json()["result"][0][name]["RequestStatus"]
    if status not in ("rejected", "aborted"):
        end = "rejected" if status in ("new", "assignment-approved") else "aborted"
        assert call(url, "PUT", f"/request/{name}", {"RequestStatus": end}).ok


def test_an_unknown_name_gives_an_empty_list(url: str, reqmgr2: ReqMgr2) -> None:
    assert call(url, "GET", "/request", name=UNKNOWN).json() == {"result": []}
    with pytest.raises(NotFoundInService):
        reqmgr2.request(UNKNOWN)


def test_a_status_gives_documents_or_names(url: str) -> None:
    names = call(url, "GET", "/request", status="staged", detail="false").json()["result"]
    assert all(isinstance(name, str) for name in names)


def test_a_change_of_an_unknown_request_is_refused(url: str, reqmgr2: ReqMgr2) -> None:
    assert 400 <= call(url, "PUT", f"/request/{UNKNOWN}", {"RequestStatus": "acquired"}).status_code < 600
    with pytest.raises(ServiceRejected):
        reqmgr2.set_status(UNKNOWN, "acquired")


def test_a_request_is_new_and_knows_its_name_and_history(reqmgr2: ReqMgr2, made: str) -> None:
    document = reqmgr2.request(made)
    assert (document["RequestName"], document["RequestStatus"]) == (made, "new")
    assert [step["Status"] for step in document["RequestTransition"]] == ["new"]


def test_a_step_that_the_table_does_not_have_is_refused_in_a_header(url: str, reqmgr2: ReqMgr2, made: str) -> None:
    answer = call(url, "PUT", f"/request/{made}", {"RequestStatus": "running-open"})
    assert answer.status_code >= 400 and answer.headers.get("X-Error-Detail")
    with pytest.raises(ServiceRejected):
        reqmgr2.set_status(made, "running-open")
    assert reqmgr2.request(made)["RequestStatus"] == "new"


def test_a_step_taken_again_is_settled_by_reading_back(reqmgr2: ReqMgr2, made: str) -> None:
    for _ in range(2):
        reqmgr2.set_status(made, "assignment-approved")
    assert reqmgr2.request(made)["RequestStatus"] == "assignment-approved"


def test_a_priority_is_changed(url: str, reqmgr2: ReqMgr2, made: str) -> None:
    reqmgr2.set_status(made, "assignment-approved")
    assert call(url, "PUT", f"/request/{made}", {"RequestPriority": 4321}).ok
    assert reqmgr2.request(made)["RequestPriority"] == 4321
