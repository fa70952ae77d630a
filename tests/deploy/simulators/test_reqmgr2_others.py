"""ReqMgr2: what agents and its own tasks do by themselves, who may do what, and an answer that is lost after it took effect."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.support.simulator_world import TIMEOUT_SECONDS, World


def habits(world: World, **effect_request: Any) -> requests.Response:
    return requests.post(f"{world.url}/admin/reqmgr2", json=effect_request, timeout=TIMEOUT_SECONDS)


def put_in_store(world: World, status: str, **more: Any) -> str:
    name = f"tester_{status}"
    document = {"RequestName": name, "RequestStatus": status, "RequestType": "ReReco", "RequestPriority": 1, **more}
    world.application.reqmgr2.store.put(document)
    return name


def test_nobody_else_acts_until_it_is_set(world: World) -> None:
    names = {status: put_in_store(world, status) for status in ("staged", "aborted", "force-complete")}
    assert all(world.request(name)["RequestStatus"] == status for status, name in names.items())


def test_agents_take_what_is_staged_for_any_team_and_have_it_in_their_queue(world: World) -> None:
    name = put_in_store(world, "staged", Team="somebody")
    assert habits(world, agents_seconds=0).json()["agents_seconds"] == 0
    world.reqmgr2("GET", "request?status=staged&detail=false")
    assert world.reqmgr2("GET", "request?status=staged&detail=false").json()["result"] == []
    assert world.request(name)["RequestStatus"] == "acquired"
    rows = world.couch("POST", "workqueue_inbox/_all_docs", json={"keys": [name, "other"]}).json()["rows"]
    assert [row.get("id") for row in rows] == [name, None]


@pytest.mark.parametrize(("before", "after"), [("aborted", "aborted-completed"), ("force-complete", "completed")])
def test_ends_move_on_where_no_queue_has_elements(world: World, before: str, after: str) -> None:
    name = put_in_store(world, before)
    world.couch("PUT", f"workqueue_inbox/{name}", json={})
    habits(world, settle_seconds=0)
    assert world.request(name)["RequestStatus"] == before
    rev = world.couch("GET", f"workqueue_inbox/{name}").json()["_rev"]
    world.couch("DELETE", f"workqueue_inbox/{name}", params={"rev": rev})
    assert world.request(name)["RequestStatus"] == after


def test_what_is_completed_is_closed_out_announced_and_archived_unless_it_has_no_lumis(world: World) -> None:
    name = put_in_store(world, "completed", TotalInputLumis=3)
    world.couch("PUT", f"workqueue_inbox/{name}", json={})
    habits(world, close_seconds=0)
    assert world.request(name)["RequestStatus"] == "closed-out"
    habits(world, archive_seconds=0)
    assert world.request(name)["RequestStatus"] == "normal-archived"
    assert [step["Status"] for step in world.request(name)["RequestTransition"]] == ["closed-out", "announced", "normal-archived"]
    assert world.request(put_in_store(world, "completed"))["RequestStatus"] == "completed"


def test_without_the_role_only_what_people_set_is_taken(world: World) -> None:
    habits(world, admins=["robot"])
    name = put_in_store(world, "staged")
    refused = world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "acquired"})
    assert refused.status_code == 403
    assert "<p>You are not allowed to access this resource.</p>" in refused.text
    assert not [header for header in refused.headers if header.startswith("X-")]
    robot = {"Cms-Authn-Login": "robot"}
    assert world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "acquired"}, headers=robot).status_code == 200
    assert world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "aborted"}).status_code == 200


def test_an_answer_is_lost_after_it_took_effect(world: World) -> None:
    habits(world, lost_answers=1)
    name = put_in_store(world, "staged")
    assert world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "acquired"}).status_code == 500
    assert world.request(name)["RequestStatus"] == "acquired"
    assert world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "running-open"}).status_code == 200


def test_a_list_is_as_old_as_the_last_question_and_a_document_is_not(world: World) -> None:
    name = put_in_store(world, "staged", Team="wms2")
    assert world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "aborted"}).status_code == 200
    lists = [
        world.reqmgr2("GET", f"request?status={status}&team=wms2").json()["result"] for status in ("staged", "staged", "aborted")
    ]
    assert [[*found[0]] if found else [] for found in lists] == [[name], [], [name]]
    assert lists[0][0][name]["RequestStatus"] == world.request(name)["RequestStatus"] == "aborted"


def test_a_habit_that_does_not_exist_is_refused(world: World) -> None:
    assert habits(world, patience=1).status_code == 400
