"""Staged requests of our team become ours, once, whatever happens in between; nobody else finds them staged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deploy.simulators.configcache import ELEMENT
from requests_app.models import HoldCode, Lease, ReqMgr2Request, Request, RequestStatus
from requests_app.reqmgr2 import acquiring
from requests_app.reqmgr2.following import POLL, reqmgr2_poll
from requests_app.service_level import new_work_allow, new_work_stop, service_rows
from requests_app.services import request_abort, request_release
from requests_app.services.intake import Received, request_receive
from tests.support.faults import fault
from tests.support.reqmgr2_world import Outside, taken
from tests.support.scripted import documents
from tests.support.scripted.progress import fresh, run_on
from tests.support.scripted.world import World
from wms2.adapters import factory
from wms2.adapters.reqmgr2 import ReqMgr2
from wms2.conf import conf
from wms2.errors import DocumentRefused, LedgerViolation, ServiceUnavailable

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


def test_a_staged_request_of_our_team_runs_to_its_end_and_reqmgr2_has_every_step(world: World, outside: Outside) -> None:
    name = outside.stage()
    request = taken(name)
    assert (request.status, outside.status(name)) == (S.SUBMITTED, "acquired")
    assert run_on(world, request) == S.COMPLETED
    world.effects()
    assert outside.steps(name) == ["staged", "acquired", "running-open", "running-closed", "completed"]
    document = outside.simulators.request(name)
    assert (document["TotalEstimatedJobs"], document["TotalInputEvents"]) == (3, 300)
    reqmgr2_poll(force=True)
    assert ReqMgr2Request.objects.get(name=name).over


@pytest.mark.parametrize(("when", "types"), [("completion", {"VALID"}), ("announcement", {"PRODUCTION"})])
def test_datasets_become_valid_at_completion_or_are_left_to_who_announces(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch, when: str, types: set[str]
) -> None:
    monkeypatch.setenv("WMS2_DATASETS_VALID_AT", when)
    conf.cache_clear()
    request = taken(outside.stage())
    assert run_on(world, request) == S.COMPLETED
    names = request.workflow.output_datasets.values_list("name", flat=True)
    assert {world.dbs.access.get(name, "PRODUCTION") for name in names} == types


def test_agents_find_none_of_ours_staged(world: World, outside: Outside) -> None:
    name, other = outside.stage(), outside.stage(Team="production")
    taken(name)
    outside.habits(agents_seconds=0.0)
    outside.simulators.reqmgr2("GET", "request?status=staged&detail=false")
    staged = outside.simulators.reqmgr2("GET", "request?status=staged&detail=false").json()["result"]
    assert staged == [], "the agents have taken the other one"
    assert outside.steps(other) == ["staged", "acquired"]
    assert outside.steps(name) == ["staged", "acquired"]
    queue = outside.simulators.couch("GET", "workqueue_inbox/_all_docs").json()["rows"]
    assert [row["id"] for row in queue] == [other]
    reqmgr2_poll(force=True)
    assert list(Request.objects.values_list("request_name", flat=True)) == [name]


@pytest.mark.parametrize("point", ["claimed", "called", "recorded"])
def test_a_worker_that_is_killed_while_it_takes_one_loses_nothing_and_doubles_nothing(
    world: World, outside: Outside, point: str
) -> None:
    name = outside.stage()
    world.crash_at = f"reqmgr2_take.{point}"
    with world.process():
        reqmgr2_poll(force=True)
    assert world.deaths == 1
    assert Request.objects.filter(request_name=name).exists() is (point == "recorded")
    request = taken(name)
    assert (request.status, outside.steps(name)) == (S.SUBMITTED, ["staged", "acquired"])
    reqmgr2_poll(force=True)
    assert Request.objects.count() == 1


def test_a_poll_that_stood_still_does_not_forget_what_another_has_begun_to_acquire(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its claim it would be another installation's, and held."""
    place, names = factory.reqmgr2(), []
    seen = place.seen

    def stands_still(asked: Any) -> Any:
        monkeypatch.setattr(place, "seen", seen)
        found = seen(asked)
        names.append(outside.stage())
        world.crash_at = "reqmgr2_take.called"
        with world.process():
            reqmgr2_poll(force=True)
        return found

    monkeypatch.setattr(place, "seen", stands_still)
    reqmgr2_poll(force=True)
    assert world.deaths == 1 and outside.status(names[0]) == "acquired"
    request = taken(names[0])
    assert (request.status, request.hold_reason) == (S.SUBMITTED, "")


def test_while_new_work_is_switched_off_nothing_is_acquired_and_what_was_is_stored(world: World, outside: Outside) -> None:
    first, second = outside.stage(), outside.stage()
    world.crash_at = "reqmgr2_take.called"
    with world.process():
        reqmgr2_poll(force=True)
    acquired = next(name for name in (first, second) if outside.status(name) == "acquired")
    staged = second if acquired == first else first
    new_work_stop(service=service_rows().get(), actor="eva", reason="storage moves")
    assert taken(acquired).status == S.SUBMITTED
    reqmgr2_poll(force=True)
    assert (outside.status(staged), Request.objects.filter(request_name=staged).exists()) == ("staged", False)
    new_work_allow(service=service_rows().get(), actor="eva", reason="moved")
    assert taken(staged).status == S.SUBMITTED


def test_an_answer_that_is_lost_after_it_was_acquired_is_read_back(world: World, outside: Outside) -> None:
    outside.habits(lost_answers=1)
    name = outside.stage()
    assert taken(name).status == S.SUBMITTED
    assert outside.steps(name) == ["staged", "acquired"]


def test_of_a_batch_all_are_acquired_before_the_first_is_imported(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [outside.stage() for _ in range(4)]
    receive = acquiring.request_receive

    def slowly(**how: Any) -> Request:
        outside.habits(agents_seconds=0.0)  # the work queue lists what is staged, at the worst moment
        return receive(**how)

    monkeypatch.setattr(acquiring, "request_receive", slowly)
    reqmgr2_poll(force=True)
    assert dict(Request.objects.values_list("request_name", "status")) == dict.fromkeys(names, S.SUBMITTED)
    assert outside.simulators.couch("GET", "workqueue_inbox/_all_docs").json()["rows"] == []


def test_one_of_which_configcache_lacks_a_configuration_is_shown_after_it_was_acquired(world: World, outside: Outside) -> None:
    document = documents.generation()
    good = outside.stage()
    name = outside.stage(document={**document, "Step1": {**document["Step1"], "ConfigCacheID": "9" * 32}})
    reqmgr2_poll(force=True)
    row = ReqMgr2Request.objects.get(name=name)
    assert (row.request, outside.status(name), "9" * 32 in row.problem) == (None, "acquired", True)
    assert Request.objects.get().request_name == good
    outside.put(name, RequestStatus="aborted")
    reqmgr2_poll(force=True)
    assert not ReqMgr2Request.objects.filter(name=name).exists()


@pytest.mark.parametrize("late", [False, True], ids=["before our poll", "while it is ours"])
def test_elements_of_our_team_that_no_agent_pulls_hold_nothing_until_one_does(world: World, outside: Outside, late: bool) -> None:
    name = outside.stage()
    outside.habits(no_agents=["wms2"], agents_seconds=None if late else 0.0)
    request = taken(name)
    if late:
        outside.simulators.application.reqmgr2._queue.add(name, "wms2", pulled=False)
        reqmgr2_poll(force=True)
    assert (fresh(request).status, outside.steps(name)) == (S.SUBMITTED, ["staged", "acquired"])
    element = outside.simulators.couch("GET", f"workqueue/{name}-1").json()
    element[ELEMENT]["ChildQueueUrl"] = "http://vocms0001.cern.ch:5984"
    assert outside.simulators.couch("PUT", f"workqueue/{name}-1", json=element).status_code == 201
    reqmgr2_poll(force=True)
    assert (fresh(request).status, request.hold_code) == (S.HELD, HoldCode.RUN_ELSEWHERE)


TRANSFER = {"dataset": "/P/Era-v1/RAW", "dataType": "primary", "campaignName": "Scripted", "transferIDs": ["1"]}


@pytest.mark.parametrize(
    ("transfers", "placed"),
    [
        ([], True),
        ([{**TRANSFER, "completion": [0.0, 89.9]}], False),
        ([{**TRANSFER, "completion": [0.0, 90.0]}], True),
        ([{**TRANSFER, "completion": [0.0, 95.0]}, {**TRANSFER, "completion": []}], False),
        ([{**TRANSFER, "campaignName": "Unknown", "completion": [100.0]}], False),
        ([{"dataset": "/P/Era-v1/RAW"}], False),  # no document of MSTransferor's
        (None, False),
    ],
)
def test_one_whose_input_is_placed_is_staged_and_acquired_in_one_go(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch, transfers: Any, placed: bool
) -> None:
    monkeypatch.setenv("WMS2_REQMGR2_TAKE_STAGING", "true")
    conf.cache_clear()
    name, other = outside.stage("staging"), outside.stage()
    outside.simulators.reqmgr2("PUT", "campaignconfig/Scripted", {"CampaignName": "Scripted", "PartialCopy": 0.9})
    if transfers is not None:
        outside.simulators.reqmgr2("PUT", f"transferinfo/{name}", {"workflowName": name, "lastUpdate": 1, "transfers": transfers})
    reqmgr2_poll(force=True)
    assert outside.steps(name) == (["staging", "staged", "acquired"] if placed else ["staging"])
    assert Request.objects.filter(request_name=name, status=S.SUBMITTED).exists() is placed
    assert Request.objects.filter(request_name=other).exists(), "whatever is the matter with one"


def test_what_the_work_queue_has_too_is_imported_held(world: World, outside: Outside) -> None:
    name = outside.stage()
    outside.agents_take(name)
    request = taken(name)
    assert (request.status, request.hold_code) == (S.HELD, HoldCode.RUN_ELSEWHERE)
    assert "work queue of WMCore has it too" in request.hold_reason
    for _ in range(3):
        world.cycle()
        reqmgr2_poll(force=True)
    assert fresh(request).status == S.HELD


def test_what_agents_begin_to_run_later_is_held_once(world: World, outside: Outside) -> None:
    name = outside.stage()
    request = taken(name)
    outside.agents_take(name)
    reqmgr2_poll(force=True)
    assert fresh(request).status == S.HELD
    request_release(request=request, actor="olga", reason="their element is gone")
    reqmgr2_poll(force=True)
    assert fresh(request).status == S.SUBMITTED


def between(monkeypatch: pytest.MonkeyPatch, does: Callable[[], None], lost: bool) -> None:
    """What happens after WMS2 has looked, and before its step to acquired reaches ReqMgr2; or that step is lost on its way."""
    put = ReqMgr2._put

    def late(self: ReqMgr2, name: str, changes: Any, operation: str) -> None:
        if operation == "acquire":
            does()
            if lost:
                raise ServiceUnavailable("reqmgr2", operation, "no answer")
        put(self, name, changes, operation)

    monkeypatch.setattr(ReqMgr2, "_put", late)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "lost on its way"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["staged", "imported by hand"])
def test_what_agents_take_at_the_very_moment_is_held(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch, lost: bool, by_hand: bool
) -> None:
    name = outside.stage()
    if by_hand:
        request_receive(received=Received(request_name=name), actor="olga")

    def agents() -> None:
        outside.agents_take(name)
        outside.put(name, RequestStatus="acquired")

    between(monkeypatch, agents, lost)
    request = taken(name)
    assert (request.status, outside.steps(name)) == (S.HELD, ["staged", "acquired"])
    assert "work queue of WMCore has it too" in request.hold_reason


def test_what_somebody_else_acquired_for_our_team_is_imported_held(world: World, outside: Outside) -> None:
    name = outside.stage("acquired")
    request = taken(name)
    assert (request.status, request.hold_code) == (S.HELD, HoldCode.RUN_ELSEWHERE)
    assert "not by this installation" in request.hold_reason


@pytest.mark.parametrize("status", ["aborted", "force-complete"])
@pytest.mark.parametrize("listed", ["staged", "acquired"])
def test_what_ended_just_before_the_poll_is_not_taken_though_a_list_still_has_it(
    world: World, outside: Outside, listed: str, status: str
) -> None:
    name, store = outside.stage(listed), outside.simulators.application.reqmgr2.store
    assert name in store.by_view("byteamandstatus", [["wms2", listed]])
    with store.changing(name) as document:
        document["RequestStatus"] = status
    for _ in range(2):
        reqmgr2_poll(force=True)
    assert (Request.objects.count(), ReqMgr2Request.objects.count()) == (0, 0)


@fault(
    "bad rows in every poll: ReqMgr2, taking",
    done="a document without a status in the list of assigned ones",
    spec="issue: One bad row stops all others",
    afterwards="the others are taken, and its claim stays",
)
def test_a_document_without_a_status_stops_no_other_and_its_claim_stays(world: World, outside: Outside) -> None:
    odd = outside.stage()
    world.crash_at = "reqmgr2_take.claimed"
    with world.process():
        reqmgr2_poll(force=True)
    store = outside.simulators.application.reqmgr2.store
    with store.changing(odd) as document:
        del document["RequestStatus"]
    for _ in range(2):
        assert taken(outside.stage()).status == S.SUBMITTED
        assert ReqMgr2Request.objects.get(name=odd).claimed_at is not None
        assert f"{odd}: ReqMgr2 has no status of it" in Lease.objects.get(name=POLL).data["error"]
    with store.changing(odd) as document:
        document["RequestStatus"] = "acquired"
    request = taken(odd)
    assert (request.status, request.hold_reason) == (S.SUBMITTED, ""), "the claim says that it is ours"


def test_what_is_aborted_while_it_is_acquired_is_not_taken(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = outside.stage()
    acquire = ReqMgr2.acquire

    def late(self: ReqMgr2, name: str) -> Any:
        outside.put(name, RequestStatus="aborted")
        return acquire(self, name)

    monkeypatch.setattr(ReqMgr2, "acquire", late)
    for _ in range(2):
        reqmgr2_poll(force=True)
    assert (Request.objects.count(), ReqMgr2Request.objects.count()) == (0, 0)
    assert outside.steps(name) == ["staged", "aborted"]


def test_one_that_another_team_has_by_now_is_left_to_it(world: World, outside: Outside) -> None:
    name = outside.stage()
    with outside.simulators.application.reqmgr2.store.changing(name) as document:  # failed, assigned and staged anew meanwhile
        document["Team"] = "production"
    reqmgr2_poll(force=True)
    assert (Request.objects.count(), outside.status(name)) == (0, "staged")


def test_a_document_that_cannot_be_run_is_not_acquired_and_is_told(world: World, outside: Outside) -> None:
    name = outside.stage(Memory=900_000)
    reqmgr2_poll(force=True)
    row = ReqMgr2Request.objects.get(name=name)
    assert (row.request, outside.status(name)) == (None, "staged")
    assert "Memory" in row.problem
    outside.put(name, RequestStatus="aborted")
    reqmgr2_poll(force=True)
    assert not ReqMgr2Request.objects.exists(), "nobody waits for it any more"


def test_without_the_role_the_refusal_is_told_and_the_next_poll_takes_it(world: World, outside: Outside) -> None:
    outside.habits(admins=())
    name = outside.stage()
    reqmgr2_poll(force=True)
    problem = ReqMgr2Request.objects.get(name=name).problem
    assert "not allowed" in problem
    assert "web-service of facops" in problem
    outside.habits(admins=None)
    world.clock.advance(900)
    assert taken(name).status == S.SUBMITTED
    assert ReqMgr2Request.objects.get(name=name).problem == ""


def test_a_name_that_has_ended_here_is_not_run_again(world: World, outside: Outside) -> None:
    name = outside.stage()
    request = taken(name)
    request_abort(request=request, actor="olga", reason="because")
    outside.simulators.application.reqmgr2.store.put({**outside.simulators.request(name), "RequestStatus": "staged"})
    reqmgr2_poll(force=True)
    assert "clone it in ReqMgr2 instead" in ReqMgr2Request.objects.get(name=name).problem
    assert Request.objects.count() == 1


def test_requests_of_other_teams_are_refused_at_every_door(world: World, outside: Outside) -> None:
    name = outside.stage(Team="production")
    with pytest.raises(DocumentRefused, match="Team"):
        request_receive(received=Received(request_name=name), actor="olga")


def test_one_that_was_imported_by_hand_is_acquired_and_followed(world: World, outside: Outside) -> None:
    name = outside.stage()
    received: Any = Received(request_name=name)
    request = request_receive(received=received, actor="olga")
    world.effects()
    assert outside.status(name) == "acquired"
    outside.put(name, RequestPriority=777)
    reqmgr2_poll(force=True)
    assert fresh(request).priority == 777


def test_what_the_work_queue_has_too_is_held_as_well_when_it_is_imported_by_its_name(
    world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WMS2_REQMGR2_FOLLOW", "false")
    conf.cache_clear()
    name = outside.stage()
    outside.agents_take(name)
    with pytest.raises(DocumentRefused, match="not as new"):
        request_receive(received=Received(request_name=name, submit=False), actor="olga")
    request = request_receive(received=Received(request_name=name), actor="olga")
    assert (request.status, request.hold_code) == (S.HELD, HoldCode.RUN_ELSEWHERE)
    assert "work queue of WMCore has it too" in request.hold_reason
    for _ in range(3):
        world.cycle()
    assert fresh(request).status == S.HELD
    request_release(request=request, actor="olga", reason="their element is gone")
    assert run_on(world, request) == S.COMPLETED


def test_nothing_is_taken_unless_it_is_wanted(world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_REQMGR2_FOLLOW", "false")
    conf.cache_clear()
    name = outside.stage()
    reqmgr2_poll(force=True)
    assert (Request.objects.count(), outside.status(name)) == (0, "staged")


def test_one_that_breaks_keeps_no_other_from_being_taken(world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a resubmission whose original does not add up."""
    bad, good = sorted(outside.stage() for _ in range(2))
    receive = acquiring.request_receive

    def received(*, received: Any, **how: Any) -> Request:
        if received.request_name == bad:
            raise LedgerViolation("/store/a.root: more events are claimed than the file has")
        return receive(received=received, **how)

    monkeypatch.setattr(acquiring, "request_receive", received)
    reqmgr2_poll(force=True)
    assert Request.objects.filter(request_name=good).exists()
    problem = ReqMgr2Request.objects.get(name=bad).problem
    assert problem.startswith("not taken: ")
    assert "more events are claimed" in problem
    outside.put(good, RequestStatus="aborted")
    reqmgr2_poll(force=True)
    assert Request.objects.get(request_name=good).status == S.ABORTED
