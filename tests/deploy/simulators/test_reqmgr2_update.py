"""ReqMgr2: transitions, assignment and changes of arguments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.simulator_world import World, assert_refused, demo, put_config

WAY = ("assignment-approved", "assigned", "staging", "staged", "acquired", "running-open", "running-closed")
PATH_TO = {status: WAY[:number] for number, status in enumerate(("new", *WAY))}
AFTER = {
    "new": {"new", "assignment-approved", "rejected"},
    "assignment-approved": {"assigned", "rejected"},
    "assigned": {"staging", "aborted"},
    "staging": {"staged", "aborted"},
    "staged": {"acquired", "aborted", "failed"},
    "acquired": {"running-open", "aborted", "failed"},
    "running-open": {"running-closed", "force-complete", "aborted"},
    "running-closed": {"force-complete", "completed", "aborted"},
    "force-complete": {"completed"},
    "failed": {"rejected", "assigned"},
    "completed": {"closed-out", "rejected"},
    "closed-out": {"announced", "rejected"},
    "announced": {"rejected", "normal-archived"},
    "aborted": {"aborted-completed"},
    "aborted-completed": {"aborted-archived"},
    "rejected": {"rejected-archived"},
    "normal-archived": {"rejected-archived"},
    "aborted-archived": set(),
    "rejected-archived": set(),
}


def request_in(world: World, status: str) -> str:
    """A request of the demo, taken to a status step by step."""
    pair = demo()
    name: str = world.reqmgr2("POST", "request", pair["createRequest"]).json()["result"][0]["request"]
    for step in PATH_TO[status]:
        body = {**pair["assignRequest"], "RequestStatus": step} if step == "assigned" else {"RequestStatus": step}
        answer = world.reqmgr2("PUT", f"request/{name}", body)
        assert answer.json() == {"result": [{name: "OK"}]}, answer.headers
    return name


def put_in_store(world: World, status: str) -> str:
    """A request that is in ``status`` already."""
    name = f"tester_{status}_1"
    document = {"RequestName": name, "RequestStatus": status, "RequestType": "ReReco", "RequestPriority": 1}
    world.application.reqmgr2.store.put(document)
    return name


@pytest.mark.parametrize("before", AFTER)
def test_exactly_the_transitions_of_the_table_are_taken(world: World, before: str) -> None:
    for after in AFTER:
        if after == "assigned":
            continue  # needs its arguments: tested below
        name = put_in_store(world, before)
        answer = world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": after})
        if after in AFTER[before]:
            assert answer.json() == {"result": [{name: "OK"}]}
            assert world.request(name)["RequestTransition"][-1]["Status"] == after
        else:
            assert_refused(answer, "InvalidStateTransition", "APP 1101", f"from '{before}' to '{after}'")
            assert world.request(name)["RequestStatus"] == before


def test_a_status_that_does_not_exist_is_refused(world: World) -> None:
    assert_refused(world.reqmgr2("PUT", f"request/{put_in_store(world, 'new')}", {"RequestStatus": "done"}), "'done'")


def test_a_request_that_does_not_exist_is_refused(world: World) -> None:
    assert_refused(world.reqmgr2("PUT", "request/nobody_knows_it", {"RequestStatus": "aborted"}), "code=404", "Object Not Found")


def test_the_name_may_stand_in_the_body(world: World) -> None:
    name = put_in_store(world, "staged")
    answer = world.reqmgr2("PUT", "request", {"RequestName": name, "RequestStatus": "acquired"})
    assert answer.json() == {"result": [{name: "OK"}]}
    assert_refused(world.reqmgr2("PUT", "request", {"RequestStatus": "acquired"}), "'RequestName'")


def test_the_way_to_staged_leaves_its_history(prepared: World) -> None:
    name = request_in(prepared, "staged")
    history = prepared.request(name)["RequestTransition"]
    assert [line["Status"] for line in history] == ["new", *PATH_TO["staged"]]
    assert all(isinstance(line["UpdateTime"], int) and "DN" in line for line in history)


def test_an_assignment_fills_in_its_defaults(prepared: World) -> None:
    document = prepared.request(request_in(prepared, "assigned"))
    assert (document["BlockCloseMaxFiles"], document["BlockCloseMaxEvents"]) == (500, 25_000_000)
    assert (document["BlockCloseMaxSize"], document["BlockCloseMaxWaitTime"]) == (5_000_000_000_000, 66_400)
    assert (document["SoftTimeout"], document["GracePeriod"], document["HardTimeout"]) == (129_600, 300, 129_900)
    assert (document["TrustSitelists"], document["SubscriptionPriority"], document["CustodialSites"]) == (False, "Low", [])
    assert document["MergedLFNBase"] == "/store/mc"
    assert document["OutputModulesLFNBases"] == [
        f"/store/unmerged/DemoWinter26/DemoPsiToMuMu_13p6TeV/{tier}/PsiToMuMu-v1"
        for tier in ("GEN-SIM", "GEN-SIM-DIGI-RAW", "AODSIM")
    ]


def assign(world: World, **changes: Any) -> Any:
    """A fresh request, approved, and the answer to its assignment with these changes."""
    name = request_in(world, "assignment-approved")
    body = {**demo()["assignRequest"], "RequestStatus": "assigned", **changes}
    return name, world.reqmgr2("PUT", f"request/{name}", {key: value for key, value in body.items() if value is not ...})


def test_era_string_and_version_of_the_assignment_make_the_output_names(prepared: World) -> None:
    eras = {"GenSim": "EraA", "DigiRaw": "EraB", "Reco": "EraC"}
    name, answer = assign(prepared, AcquisitionEra=eras, ProcessingString="Other", ProcessingVersion=7)
    assert answer.status_code == 200, answer.headers
    document = prepared.request(name)
    assert document["OutputDatasets"] == [
        "/DemoPsiToMuMu_13p6TeV/EraA-Other-v7/GEN-SIM",
        "/DemoPsiToMuMu_13p6TeV/EraC-Other-v7/AODSIM",
    ]
    assert document["AcquisitionEra"] == eras
    assert [document[f"Step{number}"]["AcquisitionEra"] for number in (1, 2, 3)] == ["EraA", "EraB", "EraC"]
    assert document["ChainParentageMap"]["Step3"]["ParentDset"] == document["OutputDatasets"][0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Team": ...}, "Argument 'Team' is mandatory"),
        ({"SiteWhitelist": ...}, "Argument 'SiteWhitelist' is mandatory"),
        ({"SiteWhitelist": []}, "cannot be an empty list"),
        ({"SiteWhitelist": ["FNAL"]}, "does not match regular expression"),
        ({"SiteBlacklist": ["T2_CH_CERN"]}, "The same site cannot be white and blacklisted"),
        ({"InputDataset": "/A/B-v1/RAW"}, "unknown/unsupported arguments"),
        ({"Dashboard": "fun"}, "Invalid dashboard activity"),
        ({"AcquisitionEra": {"GenSim": "EraA"}}, "'DigiRaw'"),
        ({"MergedLFNBase": "/Store"}, "doesn't match any of the following"),
        ({"RequestPriority": 1_000_000}, "doesn't pass"),
        ({"TrustSitelists": True}, "without input dataset is forbidden"),
        ({"TrustPUSitelists": True}, "without pileup dataset is forbidden"),
        ({"SubscriptionPriority": "urgent"}, "doesn't pass"),
    ],
)
def test_an_assignment_is_refused(prepared: World, changes: dict[str, Any], words: str) -> None:
    name, answer = assign(prepared, **changes)
    assert_refused(answer, words)
    document = prepared.request(name)
    assert document["RequestStatus"] == "assignment-approved"
    assert "Team" not in document


def test_an_assignment_to_a_tier_that_dbs_does_not_have_is_refused(prepared: World) -> None:
    with prepared.application.dbs.storage.writing() as db:
        db.execute("DELETE FROM data_tiers WHERE data_tier_name = 'AODSIM'")
    assert_refused(assign(prepared)[1], "Bad datatier(s): ['AODSIM'] not available in DBS.")


def test_output_datasets_that_would_be_the_same_cannot_be_assigned(prepared: World) -> None:
    put_config(prepared, "d" * 32, OTHER=("GEN-SIM", ""))
    pair = demo()
    pair["createRequest"]["Step3"]["ConfigCacheID"] = "d" * 32
    name = prepared.reqmgr2("POST", "request", pair["createRequest"]).json()["result"][0]["request"]
    prepared.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "assignment-approved"})
    answer = prepared.reqmgr2("PUT", f"request/{name}", {**pair["assignRequest"], "RequestStatus": "assigned"})
    assert_refused(answer, "contains duplicates")


def test_a_change_of_priority_is_kept_in_its_own_history(prepared: World) -> None:
    name = request_in(prepared, "acquired")
    assert prepared.reqmgr2("PUT", f"request/{name}", {"RequestPriority": 42}).json() == {"result": [{name: "OK"}]}
    document = prepared.request(name)
    assert document["RequestPriority"] == 42
    assert [line["Priority"] for line in document["PriorityTransition"]] == [110000, 42]
    assert document["InitialPriority"] == 110000


@pytest.mark.parametrize("value", [-1, 1_000_000, "high", None])
def test_a_wrong_priority_is_refused(prepared: World, value: Any) -> None:
    name = request_in(prepared, "staged")
    assert_refused(prepared.reqmgr2("PUT", f"request/{name}", {"RequestPriority": value}))
    assert prepared.request(name)["RequestPriority"] == 110000


def test_site_lists_may_change_while_a_request_runs(prepared: World) -> None:
    name = request_in(prepared, "running-open")
    assert prepared.reqmgr2("PUT", f"request/{name}", {"SiteWhitelist": ["T2_CH_CERN"]}).status_code == 200
    assert prepared.request(name)["SiteWhitelist"] == ["T2_CH_CERN"]
    assert_refused(prepared.reqmgr2("PUT", f"request/{name}", {"SiteBlacklist": ["T2_CH_CERN"]}), "Conflicting sites")


def test_a_change_that_the_status_does_not_allow_is_dropped_in_silence(prepared: World) -> None:
    name = request_in(prepared, "running-closed")
    assert prepared.reqmgr2("PUT", f"request/{name}", {"SiteWhitelist": ["T2_CH_CERN"]}).json() == {"result": [{name: "OK"}]}
    assert len(prepared.request(name)["SiteWhitelist"]) == 3


def test_an_unknown_argument_of_a_change_is_refused(prepared: World) -> None:
    name = request_in(prepared, "staged")
    assert_refused(prepared.reqmgr2("PUT", f"request/{name}", {"Nonsense": 1}), "['Nonsense']")


def test_other_arguments_with_a_transition_are_refused_or_dropped_by_the_target(prepared: World) -> None:
    name = request_in(prepared, "staged")
    assert_refused(
        prepared.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "acquired", "RequestPriority": 1}), "invalid arguments"
    )
    assert prepared.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "aborted", "RequestPriority": 1}).status_code == 200
    assert prepared.request(name)["RequestPriority"] == 110000


def test_the_four_statistics_add_up_and_are_answered_with_error(prepared: World) -> None:
    name = request_in(prepared, "acquired")
    body = {"total_jobs": 32, "input_lumis": 320, "input_events": 3200, "input_num_files": 0}
    for _ in range(2):
        assert prepared.reqmgr2("PUT", f"request/{name}", body).json() == {"result": [{name: "ERROR"}]}
    document = prepared.request(name)
    assert (document["TotalEstimatedJobs"], document["TotalInputLumis"]) == (64, 640)
    assert (document["TotalInputEvents"], document["TotalInputFiles"]) == (6400, 0)


def test_three_statistics_are_unknown_arguments(prepared: World) -> None:
    name = request_in(prepared, "acquired")
    assert_refused(prepared.reqmgr2("PUT", f"request/{name}", {"total_jobs": 1}), "unknown/unsupported")


def test_of_many_transitions_at_once_one_wins(world: World) -> None:
    name = put_in_store(world, "staged")
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: world.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "acquired"}), range(8))
        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
    assert [line["Status"] for line in world.request(name)["RequestTransition"]] == ["acquired"]
