"""What plan_request takes from a document: only what says how work is cut."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.planning.report import plan_document
from dags_app.planning.specs import InputFileSpec, SplittingAlgo
from requests_app.intake import prepare_plan_spec
from requests_app.intake.files_document import read_files
from requests_app.intake.plan import refuse_unknown_blocks
from tests.support.intake import Document, chain, real_document, reprocessing, tasks, with_step
from wms2.errors import DocumentRefused

_DATASET = "/MuonEG/Run2024C-v1/RAW"


def _refused(document: Document, *, files_given: bool = True) -> dict[str, str]:
    with pytest.raises(DocumentRefused) as refused:
        prepare_plan_spec(document, files_given=files_given)
    return {problem.field: problem.problem for problem in refused.value.problems}


def test_a_generation_needs_no_names_and_no_files() -> None:
    document = chain(RequestName=..., Campaign="a b", AcquisitionEra=..., ConfigCacheUrl=..., CMSSWVersion=..., StepChain=...)
    spec = prepare_plan_spec(document, files_given=False)
    assert spec.generation is not None
    assert (spec.generation.events, spec.generation.events_per_job) == (10_000, 1_000)
    assert spec.site_whitelist == ("T1_US_FNAL", "T2_CH_CERN")


def test_a_real_template_can_be_planned_as_it_comes() -> None:
    spec = prepare_plan_spec(real_document("SC_ProdPsi.json"), files_given=False)
    assert spec.generation is not None
    assert (spec.generation.first_event, spec.generation.first_lumi, spec.generation.events_per_job) == (10_001, 101, 1_100)


def test_every_task_of_a_chain_is_planned_and_its_walls_are_shown() -> None:
    """Like CMS's production chains: five lumis of 100 events a job, digitisation of 35 s an event, 12 h a job by default."""
    document = tasks()
    document["Task1"] |= {
        "RequestNumEvents": 50_000, "EventsPerJob": 2000, "EventsPerLumi": 100, "FilterEfficiency": 1, "TimePerEvent": 5,
    }  # fmt: skip
    document["Task2"] |= {"SplittingAlgo": "EventAwareLumiBased", "EventsPerJob": None, "TimePerEvent": 52.3}
    document["Task3"] |= {"SplittingAlgo": "EventBased", "EventsPerJob": 500, "TimePerEvent": 1, "InputTask": "GenSim"}
    plan = plan_document(prepare_plan_spec(document, files_given=False), [])
    levels = [(level["name"], level["jobs"], level["most_events"], level["longest_wall_hours"]) for level in plan["levels"]]
    assert levels == [("GenSim", 25, 2000, 2.78), ("Reco", 75, 700, 10.17), ("Nano", 100, 500, 0.14)]
    assert plan["warnings"] == []
    del document["Task1"]["EventsPerLumi"]  # one lumi a job, which no task can cut by lumi
    document["Task2"]["TimePerEvent"] = 430
    (warning,) = plan_document(prepare_plan_spec(document, files_given=False), [])["warnings"]
    assert "25 of the jobs of task 2 (Reco) are expected to take longer than 48 h" in warning
    assert "(the longest 238.9 h); a lumi is never cut" in warning


def test_a_task_that_reads_none_is_refused() -> None:
    document = tasks()
    document["Task2"]["InputTask"] = "Nobody"
    assert _refused(document, files_given=False) == {"Task2.InputTask": "'Nobody' is no earlier task (earlier: GenSim)"}


def test_a_generation_reads_no_files() -> None:
    assert "files" in _refused(chain(), files_given=True)


@pytest.mark.parametrize("request_type", ["ReReco", ...])
def test_a_reprocessing_is_cut_as_it_says(request_type: Any) -> None:
    spec = prepare_plan_spec(reprocessing(RequestType=request_type), files_given=True)
    assert spec.input is not None
    assert (spec.splitting.algorithm, spec.splitting.files_per_job) == (SplittingAlgo.FILE_BASED, 2)


@pytest.mark.parametrize("request_type", ["StepChain", ...])
def test_a_chain_with_input_can_be_planned(request_type: Any) -> None:
    document = with_step(
        1,
        chain(RequestType=request_type),
        InputDataset="/a/b-v1/RAW",
        SplittingAlgo="EventBased",
        EventsPerJob=1250,
        EventsPerLumi=300,
    )
    spec = prepare_plan_spec(document, files_given=True)
    assert (spec.splitting.events_per_job, spec.splitting.events_per_lumi) == (1200, 300)
    assert spec.generation is None


def test_lists_are_handed_to_the_planner() -> None:
    document = reprocessing(
        LumiList={"2": [[5, 9], [1, 3]], "1": [["4", 4.0]]},
        RunWhitelist=[2, 1, 2],
        RunBlacklist=[3],
        TrustSitelists="true",
        IncludeParents=True,
    )
    spec = prepare_plan_spec(document, files_given=True)
    assert spec.input is not None
    assert spec.input.lumi_list == {1: ((4, 4),), 2: ((1, 3), (5, 9))}
    assert (spec.input.run_whitelist, spec.input.run_blacklist, spec.input.include_parents) == ((1, 2), (3,), True)
    assert spec.trust_sitelists


def test_run_lists_of_a_chain_stand_in_its_first_step_and_the_lumi_list_at_the_top() -> None:
    document = with_step(
        1, chain(LumiList={"7": [[1, 2]]}), InputDataset="/a/b-v1/RAW", SplittingAlgo="FileBased", RunWhitelist=[7]
    )
    spec = prepare_plan_spec(document, files_given=True)
    assert spec.input is not None
    assert (spec.input.run_whitelist, spec.input.lumi_list) == ((7,), {7: ((1, 2),)})


@pytest.mark.parametrize(
    "lumi_list",
    [
        "text", [1], {"x": [[1, 2]]}, {"1": [[2, 1]]}, {"1": [1, 2]}, {"1": 5}, {"0": [[1, 2]]}, {"1": [[1, 2, 3]]},
        {"1": [[1, True]]},
    ],
)  # fmt: skip
def test_an_illegal_lumi_list_is_refused(lumi_list: Any) -> None:
    assert set(_refused(reprocessing(LumiList=lumi_list))) == {"LumiList"}


@pytest.mark.parametrize("runs", ["1,2", {"1": 2}, ["x"], [0], [True], 5])
def test_illegal_run_lists_are_refused(runs: Any) -> None:
    assert set(_refused(reprocessing(RunWhitelist=runs))) == {"RunWhitelist"}


def test_splitting_at_the_top_of_a_chain_is_told_to_have_no_effect() -> None:
    document = with_step(
        1, chain(SplittingAlgo="FileBased", FilesPerJob=3), InputDataset="/A/B-v1/RAW", SplittingAlgo="LumiBased"
    )
    spec = prepare_plan_spec(document, files_given=True)
    assert spec.splitting.algorithm is SplittingAlgo.LUMI_BASED
    assert {warning.partition(": ")[0]: warning for warning in spec.warnings} == {
        "SplittingAlgo": "SplittingAlgo: has no effect at the top of a StepChain; give it as Step1.SplittingAlgo",
        "FilesPerJob": "FilesPerJob: has no effect at the top of a StepChain; give it as Step1.FilesPerJob",
    }


def test_an_input_without_files_says_why_there_are_no_jobs() -> None:
    assert prepare_plan_spec(reprocessing(), files_given=True).warnings == ()
    (warning,) = prepare_plan_spec(reprocessing(), files_given=False).warnings
    assert warning == "files: none given, so there are no jobs: the request reads an input dataset"


def test_block_lists_choose_among_files_that_carry_their_block() -> None:
    lists = {"BlockWhitelist": [f"{_DATASET}#{n}" for n in (1, 2)], "BlockBlacklist": [f"{_DATASET}#2"]}
    spec = prepare_plan_spec(
        reprocessing(InputDataset=_DATASET, SplittingAlgo="FileBased", LumiList=..., **lists), files_given=True
    )
    files = [
        InputFileSpec(f"/store/data/{n}.root", 1, 10, {1: ((n, n),)}, frozenset(spec.site_whitelist), block=f"{_DATASET}#{n}")
        for n in (1, 2, 3)
    ]
    refuse_unknown_blocks(spec, files)
    plan = plan_document(spec, files)
    assert [job["files"] for job in plan["jobs"]] == [["/store/data/1.root"]]
    assert [(each["lfn"], each["reason"].partition("#")[2]) for each in plan["excluded"]] == [
        ("/store/data/2.root", "2 is on BlockBlacklist"),
        ("/store/data/3.root", "3 is not on BlockWhitelist"),
    ]
    with pytest.raises(DocumentRefused, match=r"files\.1\.block: is missing"):
        refuse_unknown_blocks(spec, [files[0], files[1]._replace(block="")])
    (read,) = read_files({"files": [{"lfn": "/store/1.root", "size_bytes": 1, "events": 1, "block": "/a/b-v1/C#1"}]})
    assert read.block == "/a/b-v1/C#1"


@pytest.mark.parametrize(
    "document", [reprocessing, lambda **fields: with_step(1, InputDataset="/a/b-v1/RAW", SplittingAlgo="FileBased", **fields)]
)
def test_splitting_arguments_without_a_field_travel_in_their_own(document: Any) -> None:
    spec = prepare_plan_spec(
        document(SplittingParams={"halt_job_on_file_boundaries": True, "job_time_limit": 3600}), files_given=True
    )
    assert spec.splitting.halt_job_on_file_boundaries
    assert spec.splitting.job_time_limit_seconds == 3600


def test_unknown_or_illegal_splitting_arguments_are_refused() -> None:
    found = _refused(reprocessing(SplittingParams={"job_time_limit": 0, "files_per_job": 3, "halt_job_on_file_boundaries": 1}))
    assert set(found) == {
        "SplittingParams.job_time_limit",
        "SplittingParams.files_per_job",
        "SplittingParams.halt_job_on_file_boundaries",
    }
    assert set(_refused(reprocessing(SplittingParams=[1]))) == {"SplittingParams"}


@pytest.mark.parametrize("request_type", ["Resubmission", "DQMHarvest", "Nonsense"])
def test_other_types_cannot_be_planned(request_type: str) -> None:
    assert set(_refused(reprocessing(RequestType=request_type, InputDataset=...))) == {"RequestType"}


def test_an_algorithm_that_the_planner_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from requests_app.intake import work

    monkeypatch.setattr(work, "SPLITTERS", {SplittingAlgo.EVENT_BASED: object})
    assert _refused(reprocessing()) == {"SplittingAlgo": "not yet supported: FileBased splitting"}


def test_what_does_not_change_the_cutting_is_left_alone() -> None:
    prepare_plan_spec(with_step(2, chain(EnableHarvesting=True), MCPileup="/a/b/RAW", RequiresGPU="required"), files_given=False)
