"""ReqMgr2: reading, pushing the status step by step, and calls lost on the way; against the simulator."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.simulators import Simulators
from wms2.adapters.configcache import couch_fault
from wms2.adapters.http import HttpService
from wms2.adapters.reqmgr2 import ReqMgr2, Seen, reqmgr2_fault
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

Seed = Callable[..., str]


def reqmgr2_at(url: str, timeout_seconds: float = 5.0) -> ReqMgr2:
    more: dict[str, Any] = {"timeout_seconds": timeout_seconds}
    couch = HttpService("reqmgr2", f"{url.removesuffix('/reqmgr2/data')}/couchdb", fault_parser=couch_fault, **more)
    return ReqMgr2(HttpService("reqmgr2", url, fault_parser=reqmgr2_fault, **more), couch)


@pytest.fixture
def reqmgr2(proxy: FaultProxy) -> ReqMgr2:
    return reqmgr2_at(f"{proxy.url}/reqmgr2/data")


@pytest.fixture
def seed(simulators: Simulators) -> Seed:
    """Puts a request into the simulator in the middle of its life."""

    def put(status: str = "staged", **more: Any) -> str:
        name = f"user_Task_{uuid.uuid4().hex[:8]}"
        document = {
            "RequestName": name,
            "RequestType": "StepChain",
            "RequestStatus": status,
            "Team": "wms2",
            "RequestPriority": 100,
        }
        simulators.call("POST", "/admin/seed", {"reqmgr2": {"requests": [document | {"RequestTransition": []} | more]}})
        return name

    return put


def test_a_document_comes_as_it_is(reqmgr2: ReqMgr2, seed: Seed) -> None:
    name = seed(Campaign="Run3Winter", Comments={"a": ["b"]})
    document = reqmgr2.request(name)
    assert (document["RequestName"], document["Campaign"], document["Comments"]) == (name, "Run3Winter", {"a": ["b"]})


def test_an_unknown_request_is_not_found(reqmgr2: ReqMgr2) -> None:
    with pytest.raises(NotFoundInService, match="no_such_request"):
        reqmgr2.request("no_such_request")
    with pytest.raises(ServiceRejected):
        reqmgr2.set_status("no_such_request", "acquired")


def test_a_step_is_taken_and_may_be_repeated(reqmgr2: ReqMgr2, seed: Seed) -> None:
    name = seed()
    reqmgr2.set_status(name, "acquired")
    reqmgr2.set_status(name, "acquired")
    assert reqmgr2.request(name)["RequestStatus"] == "acquired"


def test_a_step_the_table_does_not_have_keeps_reqmgr2s_words(reqmgr2: ReqMgr2, seed: Seed) -> None:
    with pytest.raises(ServiceRejected, match="Invalid status transition") as caught:
        reqmgr2.set_status(seed(), "completed")
    assert caught.value.code == "1102"


@pytest.mark.parametrize("fault", [Fault.DROP_AFTER_ACTING, Fault.HANG_AFTER_ACTING])
def test_a_lost_answer_to_a_step_is_settled_by_reading_back(proxy: FaultProxy, seed: Seed, fault: Fault) -> None:
    name = seed()
    proxy.arm(fault, method="PUT", path=f"{name}$", times=1)
    reqmgr2_at(f"{proxy.url}/reqmgr2/data", timeout_seconds=0.5).set_status(name, "acquired")
    assert proxy.sent("PUT", name) == 1


def test_a_step_that_was_not_taken_is_unavailable(reqmgr2: ReqMgr2, proxy: FaultProxy, seed: Seed) -> None:
    name = seed()
    proxy.arm(Fault.ERROR_500, method="PUT", path=f"{name}$", times=1)
    with pytest.raises(ServiceUnavailable):
        reqmgr2.set_status(name, "acquired")
    assert reqmgr2.request(name)["RequestStatus"] == "staged"


def test_all_steps_to_a_status_are_taken(reqmgr2: ReqMgr2, seed: Seed) -> None:
    name = seed()
    assert reqmgr2.advance_status(name, "completed") == "completed"
    statuses = [step["Status"] for step in reqmgr2.request(name)["RequestTransition"]]
    assert statuses == ["acquired", "running-open", "running-closed", "completed"]


@pytest.mark.parametrize(
    "present", ["running-open", "running-closed", "completed", "announced", "rejected", "aborted", "force-complete"]
)
def test_a_request_that_has_passed_a_status_stays_where_it_is(
    reqmgr2: ReqMgr2, proxy: FaultProxy, seed: Seed, present: str
) -> None:
    name = seed(status=present)
    assert reqmgr2.advance_status(name, "running-open") == present
    assert proxy.sent("PUT", name) == 0


def test_a_forced_and_an_aborted_request_can_be_finished(reqmgr2: ReqMgr2, seed: Seed) -> None:
    assert reqmgr2.advance_status(seed(status="force-complete"), "completed") == "completed"
    assert reqmgr2.advance_status(seed(status="aborted"), "aborted-completed") == "aborted-completed"


@pytest.mark.parametrize("present", ["new", "assigned", "failed"])
def test_a_request_that_is_not_ours_to_move_is_refused(reqmgr2: ReqMgr2, seed: Seed, present: str) -> None:
    with pytest.raises(ServiceRejected, match=f"is {present}; no steps"):
        reqmgr2.advance_status(seed(status=present), "running-open")


def test_statistics_are_added_once_even_when_the_answer_is_lost(reqmgr2: ReqMgr2, proxy: FaultProxy, seed: Seed) -> None:
    name = seed(status="acquired")
    proxy.arm(Fault.DROP_AFTER_ACTING, method="PUT", path=f"{name}$", times=1)
    with pytest.raises(ServiceUnavailable):
        reqmgr2.add_statistics(name, {"total_jobs": 8, "input_lumis": 0, "input_events": 0, "input_num_files": 0})
    assert proxy.sent("PUT", name) == 1
    with pytest.raises(ValueError, match="all four"):
        reqmgr2.add_statistics(name, {"total_jobs": 8})


def test_names_that_cannot_be_read_hide_no_other(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/request").respond_with_json({"result": ["good", None, "", "a b", "x" * 300, {"x": 1}]})
    found = reqmgr2_at(httpserver.url_for("").rstrip("/")).names_of_team("wms2", "staged")
    assert (found.read, found.problem[:27]) == (["good"], "5 of 6 rows cannot be read,")


@pytest.mark.parametrize("bad", [None, 7, {}, {"key": 7}, {"id": "x", "key": None}, {"id": ["other"], "key": {}}])
def test_an_element_that_may_be_of_any_request_says_nothing_of_the_queue(httpserver: HTTPServer, bad: object) -> None:
    reqmgr2, inbox = reqmgr2_at(httpserver.url_for("").rstrip("/")), "/couchdb/workqueue_inbox/_all_docs"
    free = {"key": "free", "error": "not_found"}
    rows = [{"id": "odd", "key": "odd", "doc": 7, "value": "?"}, {"id": "good", "key": 7}, {"key": "bare"}, free]
    asked = ["odd", "good", "bare", "free"]
    httpserver.expect_oneshot_request(inbox, method="POST").respond_with_json({"rows": rows})
    elsewhere = reqmgr2.queued_elsewhere(asked, "wms2")
    assert elsewhere == {"odd", "good", "bare"}, "of an element that cannot be read it is not known that WMCore does not run it"
    httpserver.expect_oneshot_request(inbox, method="POST").respond_with_json({"rows": [*rows, bad]})
    with pytest.raises(ServiceUnavailable, match="of none of the requests asked for"):
        reqmgr2.queued_elsewhere(asked, "wms2")


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, {"RequestPriority": 1}])
def test_a_request_whose_document_has_no_status_is_there_and_unknown(httpserver: HTTPServer, odd: object) -> None:
    httpserver.expect_request("/request").respond_with_json({"result": [{"odd": odd, "good": {"RequestStatus": "new"}}]})
    reqmgr2 = reqmgr2_at(httpserver.url_for(""))
    seen = reqmgr2.seen(["odd", "good"])
    assert (set(seen), Seen.of(seen["good"]).status) == ({"odd", "good"}, "new")
    for asked in (lambda: Seen.of(seen["odd"]), lambda: reqmgr2.request("odd")):
        with pytest.raises(ServiceUnavailable, match="without RequestStatus"):
            asked()


def test_a_clone_is_found_again_by_its_mark(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wms2.adapters.reqmgr2.VIEW_SECONDS", 0.0)
    old = {"old": {"RequestName": "old", "PrepID": "P-1", "RequestStatus": "aborted"}}
    other = {"other": {"Comments": {"WorkFlowDesc": ["x"]}}}
    for answer in (old, other, other):
        httpserver.expect_ordered_request("/request").respond_with_json({"result": [answer]})
    httpserver.expect_ordered_request("/request/clone/old", method="POST").respond_with_data("", status=502)
    for answer in (old, other | {"new": {"Comments": "wms2: v2"}}):
        httpserver.expect_ordered_request("/request").respond_with_json({"result": [answer]})
    reqmgr2 = reqmgr2_at(httpserver.url_for(""))
    with pytest.raises(ServiceUnavailable):
        reqmgr2.clone("old", "wms2: v2")
    assert reqmgr2.clone("old", "wms2: v2") == "new", "made although the answer was lost"


def test_an_acquired_request_is_read_back_and_a_refusal_is_told(reqmgr2: ReqMgr2, proxy: FaultProxy, seed: Seed) -> None:
    name = seed()
    proxy.arm(Fault.DROP_AFTER_ACTING, method="PUT", path=f"{name}$", times=1)
    document, refused = reqmgr2.acquire(name)
    assert (document["RequestStatus"], refused) == ("acquired", False)
    assert reqmgr2.acquire(name)[1], "it was not staged any more"
    late = seed()
    proxy.arm(Fault.ERROR_500, method="PUT", path=f"{late}$", times=1)
    with pytest.raises(ServiceUnavailable):
        reqmgr2.acquire(late)


def test_what_others_may_change_is_asked_for_many_at_a_time(reqmgr2: ReqMgr2, proxy: FaultProxy, seed: Seed) -> None:
    names = [seed("acquired", SiteWhitelist=["T2_B", "T1_A"]) for _ in range(45)]
    seen = reqmgr2.seen([*names, "nobody_knows_it"])
    assert set(seen) == set(names)
    assert Seen.of(seen[names[0]]) == Seen("acquired", 100, ("T1_A", "T2_B"), ())
    assert proxy.sent("GET", "/request") == 2


def test_the_work_queue_tells_what_agents_have_taken(reqmgr2: ReqMgr2, simulators: Simulators, seed: Seed) -> None:
    name, other = seed(), seed()
    simulators.call("PUT", f"/couchdb/workqueue_inbox/{name}", {"RequestName": name})
    assert reqmgr2.queued_elsewhere([name, other]) == {name}
    assert reqmgr2.queued_elsewhere([]) == set()


@pytest.mark.parametrize(
    ("present", "wanted", "then"),
    [
        ("acquired", "failed", "failed"),
        ("running-open", "failed", "aborted"),
        ("running-closed", "aborted", "aborted"),
        ("new", "aborted", "rejected"),
        ("assigned", "failed", "aborted"),
        ("completed", "aborted", "completed"),
        ("aborted-completed", "failed", "aborted-completed"),
        ("force-complete", "aborted", "force-complete"),
        ("failed", "rejected", "rejected"),
        ("failed", "aborted", "failed"),
        ("failed", "failed", "failed"),
    ],
)
def test_an_end_is_set_as_the_table_allows(reqmgr2: ReqMgr2, seed: Seed, present: str, wanted: str, then: str) -> None:
    name = seed(present)
    assert reqmgr2.give_up(name, wanted) == then
    assert reqmgr2.request(name)["RequestStatus"] == then


def test_a_missing_role_and_a_page_alone_are_reported_as_what_they_are(
    reqmgr2: ReqMgr2, simulators: Simulators, seed: Seed
) -> None:
    name = seed()
    simulators.call("POST", "/admin/reqmgr2", {"admins": []})
    with pytest.raises(ServiceRejected, match=r"lacks a role .* web-service of facops.*You are not allowed") as caught:
        reqmgr2.acquire(name)
    assert "<" not in str(caught.value)
    simulators.call("POST", "/admin/reqmgr2", {"admins": None, "lost_answers": 1})
    with pytest.raises(ServiceUnavailable, match="500 Internal Server Error: Failed to notify MSTransferor"):
        reqmgr2._put(name, {"RequestStatus": "acquired"}, "any")
    assert reqmgr2.request(name)["RequestStatus"] == "acquired"


@pytest.mark.parametrize("answer", [{"rows": []}, {"result": {}}, []])
def test_an_answer_of_another_shape_says_nothing(httpserver: HTTPServer, answer: object) -> None:
    httpserver.expect_request("/request").respond_with_json(answer)
    with pytest.raises(ServiceUnavailable, match="unexpected shape"):
        reqmgr2_at(httpserver.url_for("")).request("any")


def test_a_name_cannot_leave_its_place_in_the_path(reqmgr2: ReqMgr2, proxy: FaultProxy) -> None:
    with pytest.raises(ServiceRejected):
        reqmgr2.set_status("../status?x=1", "acquired")
    assert proxy.log[0][:2] == ("PUT", "/reqmgr2/data/request/..%2Fstatus%3Fx%3D1")
