"""What the verification expects of a document, read on its own; and that the demo's are all run, or furnished."""

from __future__ import annotations

import json

import pytest

from deploy.demo import documents
from deploy.demo.facts import Asked
from deploy.stack import demo
from tests.support.places import ROOT

STEP1 = {"StepName": "Gen", "RequestNumEvents": 1000, "KeepOutput": True}
CHAIN = {"StepChain": 2, "Step1": STEP1, "Step2": {"StepName": "Reco"}, "FirstEvent": 10_001, "FirstLumi": 101}


def test_a_chain_from_scratch_names_its_numbers_and_kept_steps():
    assert documents.asked(CHAIN) == Asked(("Gen", "Reco"), (10_001, 1000, 101), 1.0)
    sized = CHAIN | {"MinMergeSize": 500_000, "MaxMergeSize": 2_000_000}
    assert documents.asked(sized).merge_bytes == (500_000, 2_000_000)


def test_numbers_begin_at_one_and_dropped_outputs_are_not_expected():
    document = {"Step1": {**STEP1, "KeepOutput": False}, "Step2": {"StepName": "Reco"}}
    assert documents.asked(document) == Asked(("Reco",), (1, 1000, 1), 1.0)


def test_a_pair_is_read_as_one_and_the_assignment_wins():
    pair = {"createRequest": {**CHAIN, "UnmergedLFNBase": "/store/a"}, "assignRequest": {"UnmergedLFNBase": "/store/temp"}}
    assert documents.asked(pair) == documents.asked(CHAIN)
    assert documents.unmerged_base(pair) == "/store/temp"
    assert documents.unmerged_base(CHAIN) == "/store/unmerged"


def test_a_filter_makes_more_events_to_generate():
    asked = documents.asked({"Step1": {**STEP1, "FilterEfficiency": 0.25}})
    assert asked.numbers == (1, 4000, 1)
    assert asked.share == 0.25


def test_steps_are_taken_in_the_order_of_their_numbers():
    document = {f"Step{n}": {"StepName": f"s{n}", "RequestNumEvents": n} for n in (10, 2, 1)}
    assert documents.asked(document).steps_kept == ("s1", "s2", "s10")


def test_tasks_are_named_and_one_without_a_declared_dataset_keeps_nothing():
    tasks = {
        "Task1": {**STEP1, "TaskName": "HLT", "StepName": None, "ProcessingString": "HLT_x"},
        "Task2": {"TaskName": "Reco"},
        "AcquisitionEra": "Era",
        "ProcessingString": {"HLT": "HLT_x", "Reco": "Reco_x"},
    }
    assert documents.asked(tasks).steps_kept == ("HLT", "Reco")
    assert documents.asked({**tasks, "OutputDatasets": ["/P/Era-Filter-Reco_x-v1/RECO"]}).steps_kept == ("Reco",)


def test_a_request_with_input_names_its_dataset():
    assert documents.asked({"InputDataset": "/A/B-v1/RAW"}) == Asked(("DataProcessing",), None, 1.0, "/A/B-v1/RAW")


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),
        ({"RunWhitelist": [2]}, True),
        ({"RunWhitelist": [3]}, False),
        ({"RunBlacklist": [2]}, False),
        ({"BlockWhitelist": ["/a#1"]}, True),
        ({"BlockWhitelist": ["/a#2"]}, False),
        ({"BlockBlacklist": ["/a#1"]}, False),
        ({"LumiList": {"2": [[1, 4], [7, 9]]}}, True),
        ({"LumiList": {"2": [[1, 4]]}}, False),
        ({"LumiList": {"3": [[7, 7]]}}, False),
        ({"Step1": {"RunBlacklist": [2]}}, False),
    ],
)
def test_lists_of_runs_blocks_and_lumis_decide_what_is_wanted(fields, wanted):
    assert documents.wants(fields, (2, 7), "/a#1") is wanted


def test_every_document_of_the_demo_is_understood():
    found = sorted((ROOT / "deploy/demo/requests").glob("*.json"))
    assert found
    for path in found:
        asked = documents.asked(json.loads(path.read_text()))
        assert asked.steps_kept
        assert asked.numbers or asked.input_dataset


def test_every_document_of_the_demo_is_run_or_furnished() -> None:
    known = {*demo.REQUESTS, *(f"deploy/demo/requests/{name}.json" for name in demo.EXAMPLES)}
    assert known == {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy/demo/requests").glob("*.json")}


def test_the_one_that_is_imported_as_adaptive_is_run() -> None:
    assert f"deploy/demo/requests/{demo.ADAPTIVE}.json" in demo.REQUESTS
