"""ReqMgr2: what a request is made of, what is refused, and with which headers."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.support.simulator_world import World, assert_refused, bulkblock, demo, put_config

Change = Callable[[dict[str, Any]], object]


def create(world: World, document: dict[str, Any], **options: Any) -> requests.Response:
    """POST a creation."""
    return world.reqmgr2("POST", "request", document, **options)


def test_a_request_is_named_after_requestor_string_and_time(prepared: World) -> None:
    answer = create(prepared, demo()["createRequest"], headers={"Cms-Authn-Login": "alice", "Cms-Authn-Dn": "/DC=ch/CN=alice"})
    assert answer.status_code == 200
    assert answer.headers["X-REST-Status"] == "100"
    (row,) = answer.json()["result"]
    assert re.fullmatch(r"alice_demo_stepchain_scratch_\d{6}_\d{6}_\d{1,4}", row["request"])
    document = prepared.request(row["request"])
    assert document["_id"] == document["RequestName"] == row["request"]
    assert (document["Requestor"], document["RequestorDN"]) == ("alice", "/DC=ch/CN=alice")


def test_a_new_request_has_every_default_and_its_history(prepared: World) -> None:
    name = create(prepared, demo()["createRequest"]).json()["result"][0]["request"]
    document = prepared.request(name)
    assert document["RequestStatus"] == "new"
    assert [line["Status"] for line in document["RequestTransition"]] == ["new"]
    assert [line["Priority"] for line in document["PriorityTransition"]] == [110000]
    assert document["InitialPriority"] == 110000
    assert (document["MinMergeSize"], document["MaxMergeSize"], document["MaxMergeEvents"]) == (2147483648, 4294967296, 100000000)
    assert (document["Group"], document["ValidStatus"], document["LumiList"], document["RunNumber"]) == (
        "DATAOPS",
        "PRODUCTION",
        {},
        0,
    )
    assert document["DbsUrl"] == "https://cmsweb-prod.cern.ch/dbs/prod/global/DBSReader"
    assert "Team" not in document
    assert "SiteWhitelist" not in document


def test_numbers_take_the_types_of_their_definition(prepared: World) -> None:
    sent = {**demo()["createRequest"], "Memory": 2000, "RequestPriority": "90000", "EnableHarvesting": "False"}
    document = prepared.request(create(prepared, sent).json()["result"][0]["request"])
    assert (document["Memory"], document["RequestPriority"], document["EnableHarvesting"]) == (2000.0, 90000, False)


def test_output_datasets_come_from_configcache_and_kept_steps(prepared: World) -> None:
    document = prepared.request(create(prepared, demo()["createRequest"]).json()["result"][0]["request"])
    gen_sim = "/DemoPsiToMuMu_13p6TeV/DemoWinter26-PsiToMuMu-v1/GEN-SIM"
    aod = "/DemoPsiToMuMu_13p6TeV/DemoWinter26-PsiToMuMu-v1/AODSIM"
    assert document["OutputDatasets"] == [gen_sim, aod]
    assert document["ChainParentageMap"] == {
        "Step1": {"ParentDset": None, "ChildDsets": [gen_sim]},
        "Step2": {"ParentDset": gen_sim, "ChildDsets": []},
        "Step3": {"ParentDset": gen_sim, "ChildDsets": [aod]},
    }


def test_a_filter_name_becomes_part_of_the_processed_dataset(prepared: World) -> None:
    put_config(prepared, "c" * 32, OUT=("AODSIM", "Skim1"))
    sent = demo()["createRequest"]
    sent["Step3"]["ConfigCacheID"] = "c" * 32
    document = prepared.request(create(prepared, sent).json()["result"][0]["request"])
    assert document["OutputDatasets"][-1] == "/DemoPsiToMuMu_13p6TeV/DemoWinter26-Skim1-PsiToMuMu-v1/AODSIM"


@pytest.mark.parametrize(
    ("per_job", "per_lumi", "events", "expected"),
    [
        (1250, 300, 100000, (1200, 300)),
        (1180, 300, 100000, (1200, 300)),
        (500, 1000, 100000, (500, 500)),
        (None, 100, 3000, (3000, 100)),
    ],
)
def test_events_per_job_become_a_multiple_of_events_per_lumi(
    prepared: World, per_job: int | None, per_lumi: int, events: int, expected: tuple[int, int]
) -> None:
    sent = demo()["createRequest"]
    sent["Step1"].update(EventsPerLumi=per_lumi, RequestNumEvents=events)
    if per_job is None:
        del sent["Step1"]["EventsPerJob"]
    else:
        sent["Step1"]["EventsPerJob"] = per_job
    step = prepared.request(create(prepared, sent).json()["result"][0]["request"])["Step1"]
    assert (step["EventsPerJob"], step["EventsPerLumi"]) == expected


REFUSED: list[tuple[str, Change, tuple[str, ...]]] = [
    ("an unknown argument", lambda r: r.update(Nonsense=1), ("unknown/unsupported arguments", "['Nonsense']")),
    ("an argument of the assignment", lambda r: r.update(Team="x"), ("unknown/unsupported arguments", "['Team']")),
    ("splitting parameters", lambda r: r.update(SplittingParams={}), ("unknown/unsupported arguments",)),
    ("no RequestType", lambda r: r.pop("RequestType"), ("'RequestType'",)),
    ("an unknown RequestType", lambda r: r.update(RequestType="Magic"), ("No module named", "Magic")),
    ("no RequestPriority", lambda r: r.pop("RequestPriority"), ("'RequestPriority'",)),
    ("a priority out of range", lambda r: r.update(RequestPriority=1000000), ("RequestPriority", "doesn't pass")),
    ("a priority that is no number", lambda r: r.update(RequestPriority="high"), ("must be convertible by int",)),
    ("no GlobalTag", lambda r: r.pop("GlobalTag"), ("Argument 'GlobalTag' cannot be None",)),
    ("no RequestString", lambda r: r.pop("RequestString"), ("Argument 'RequestString' cannot be None",)),
    ("no ScramArch", lambda r: r.update(ScramArch=[]), ("cannot be an empty list",)),
    ("no memory", lambda r: r.update(Memory=0), ("Memory", "doesn't pass")),
    ("a bad era", lambda r: r.update(AcquisitionEra="2026A"), ("does not match regular expression",)),
    ("a dash in the processing string", lambda r: r.update(ProcessingString="a-b"), ("does not match regular expression",)),
    ("a bad campaign", lambda r: r.update(Campaign="a b"), ("does not match regular expression",)),
    ("a bad release", lambda r: r.update(CMSSWVersion="14_0_0"), ("CMSSWVersion",)),
    ("comments in a list", lambda r: r.update(Comments=["text"]), ("is not a string",)),
    ("an unknown sub-type", lambda r: r.update(SubRequestType="Toy"), ("Invalid SubRequestType",)),
    ("a step with an unknown argument", lambda r: r["Step2"].update(Colour=1), ("unknown/unsupported arguments", "['Colour']")),
    ("a step without input", lambda r: r["Step2"].pop("InputStep"), ("Argument 'InputStep' is mandatory",)),
    ("a generator without events", lambda r: r["Step1"].pop("RequestNumEvents"), ("Argument 'RequestNumEvents' is mandatory",)),
    ("another algorithm", lambda r: r["Step1"].update(SplittingAlgo="Harvest"), ("SplittingAlgo", "doesn't pass")),
    ("a missing step", lambda r: r.pop("Step2"), ("Step 'Step2' not present",)),
    ("a missing last step", lambda r: r.pop("Step3"), ("'Step3'",)),
    ("a step that is no object", lambda r: r.update(Step2=[]), ("not defined as a dictionary",)),
    ("too many steps", lambda r: r.update(StepChain=11), ("maximum allowed number of steps",)),
    (
        "the last output dropped",
        lambda r: r["Step3"].update(KeepOutput=False),
        ("Dropping the output", "last step is prohibited"),
    ),
    ("an unknown PSet", lambda r: r["Step2"].update(ConfigCacheID="f" * 32), ("Failure to load ConfigCache", "f" * 32)),
    ("an unknown input step", lambda r: r["Step3"].update(InputStep="Nowhere"), ("not subscriptable",)),
    ("an unknown input module", lambda r: r["Step2"].update(InputFromOutputModule="NoSuchOutput"), ("'NoSuchOutput'",)),
    ("an LFN base outside the rules", lambda r: r.update(MergedLFNBase="/Store/MC"), ("doesn't match any of the following",)),
    (
        "an input dataset that DBS does not have",
        lambda r: r["Step1"].update(InputDataset="/A/B-v1/RAW"),
        ("doesn't exist in DBS",),
    ),
    ("parents without input", lambda r: r["Step1"].update(IncludeParents=True), ("IncludeParents flag is True",)),
]


@pytest.mark.parametrize(("change", "words"), [(case[1], case[2]) for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_creation_is_refused_with(prepared: World, change: Change, words: tuple[str, ...]) -> None:
    sent = demo()["createRequest"]
    change(sent)
    assert_refused(create(prepared, sent), *words)
    assert prepared.reqmgr2("GET", "request?status=new").json() == {"result": []}


def test_two_steps_cannot_keep_the_same_module_and_tier(prepared: World) -> None:
    sent = demo()["createRequest"]
    sent["Step2"]["KeepOutput"] = True
    sent["Step2"]["ConfigCacheID"] = sent["Step1"]["ConfigCacheID"]
    sent["Step3"]["InputFromOutputModule"] = "FEVTDEBUGoutput"
    assert_refused(create(prepared, sent), "same output module AND datatier")


@pytest.mark.parametrize("body", [b"", b"{", b"12", b'"text"'])
def test_a_body_that_is_no_request_is_refused(world: World, body: bytes) -> None:
    assert_refused(world.reqmgr2("POST", "request", data=body))


def test_a_refusal_of_the_top_level_has_the_header_of_reqmgr2s_exception(prepared: World) -> None:
    detail = create(prepared, {**demo()["createRequest"], "Nonsense": 1}).headers["X-Error-Detail"]
    assert detail.startswith("Invalid spec parameter value: <@========== WMException Start ==========@>; ")
    assert "; Exception Class: WMSpecFactoryException; Message: There are unknown" in detail
    assert detail.endswith("...")


def test_a_rereco_takes_its_primary_dataset_from_the_input(prepared: World) -> None:
    sent = demo("rereco_input")["createRequest"] | {"IncludeParents": False}
    assert_refused(create(prepared, sent), "doesn't exist in DBS")
    assert prepared.dbs("POST", "bulkblocks", bulkblock(block=f"{sent['InputDataset']}#1")).status_code == 200
    document = prepared.request(create(prepared, sent).json()["result"][0]["request"])
    assert document["OutputDatasets"] == ["/DemoMuon/DemoRun2026A-ReRecoDemo-v1/AOD"]
    assert (document["SplittingAlgo"], document["FilesPerJob"], document["RunWhitelist"]) == ("FileBased", 2, [])


def test_a_rereco_with_parents_needs_an_input_that_has_some(prepared: World) -> None:
    sent = {**demo("rereco_input")["createRequest"], "IncludeParents": True}
    prepared.dbs("POST", "bulkblocks", bulkblock(block=f"{sent['InputDataset']}#1"))
    assert_refused(create(prepared, sent), "has no parents")


def test_lumi_masks_are_compacted(prepared: World) -> None:
    sent = demo("rereco_input")["createRequest"] | {"IncludeParents": False}
    prepared.dbs("POST", "bulkblocks", bulkblock(block=f"{sent['InputDataset']}#1"))
    sent["LumiList"] = {"390001": [[5, 9], [1, 4], [20, 25], [22, 30]]}
    document = prepared.request(create(prepared, sent).json()["result"][0]["request"])
    assert document["LumiList"] == {"390001": [[1, 9], [20, 30]]}


def test_a_clone_is_one_processing_version_further(prepared: World) -> None:
    pair = demo()
    name = create(prepared, pair["createRequest"]).json()["result"][0]["request"]
    prepared.reqmgr2("PUT", f"request/{name}", {"RequestStatus": "assignment-approved"})
    prepared.reqmgr2("PUT", f"request/{name}", {**pair["assignRequest"], "RequestStatus": "assigned"})
    answer = prepared.reqmgr2("POST", f"request/clone/{name}", {"RequestPriority": 5}, headers={"Cms-Authn-Login": "bob"})
    copied = prepared.request(answer.json()["result"][0]["request"])
    assert copied["RequestName"].startswith("bob_demo_stepchain_scratch_")
    assert (copied["RequestStatus"], copied["ProcessingVersion"], copied["RequestPriority"]) == ("new", 2, 5)
    assert "SiteWhitelist" not in copied
    assert copied["OutputDatasets"] == [
        "/DemoPsiToMuMu_13p6TeV/DemoWinter26-PsiToMuMu-v2/" + tier for tier in ("GEN-SIM", "AODSIM")
    ]


def test_a_clone_may_change_inner_values_and_is_checked_again(prepared: World) -> None:
    name = create(prepared, demo()["createRequest"]).json()["result"][0]["request"]
    answer = prepared.reqmgr2("POST", f"request/clone/{name}", {"Step1": {"RequestNumEvents": 50}})
    copied = prepared.request(answer.json()["result"][0]["request"])
    assert (copied["Step1"]["RequestNumEvents"], copied["Step1"]["StepName"]) == (50, "GenSim")
    assert_refused(prepared.reqmgr2("POST", f"request/clone/{name}", {"Nonsense": 1}), "['Nonsense']")
    assert_refused(prepared.reqmgr2("POST", "request/clone/nobody_knows_it", {}))


def test_two_requests_at_the_same_moment_get_two_names(prepared: World) -> None:
    sent = [copy.deepcopy(demo()["createRequest"]) for _ in range(20)]
    answer = prepared.reqmgr2("POST", "request", sent)
    names = [row["request"] for row in answer.json()["result"]]
    assert len(set(names)) == 20
