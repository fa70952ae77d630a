"""A TaskChain is a tree of tasks, each with its own jobs, resources and names."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.planning.specs import SplittingAlgo, TaskSpec
from requests_app.intake import prepare_plan_spec
from tests.support.intake import incomplete, problems, read, tasks, typed, with_task


def _tasks(document: Any) -> tuple[TaskSpec, ...]:
    return typed(document).tasks


def test_each_task_is_one_step_in_jobs_of_its_own() -> None:
    spec = typed(tasks())
    assert [(step.number, step.name, step.input_step, step.input_module) for step in spec.steps] == [
        (1, "GenSim", None, None),
        (2, "Reco", "GenSim", "RAWSIMoutput"),
        (3, "Nano", "GenSim", "RAWSIMoutput"),
    ]
    assert [(task.number, task.name, task.steps, task.input_task, task.input_step, task.input_module) for task in spec.tasks] == [
        (1, "GenSim", ("GenSim",), None, None, None),
        (2, "Reco", ("Reco",), "GenSim", "GenSim", "RAWSIMoutput"),
        (3, "Nano", ("Nano",), "GenSim", "GenSim", "RAWSIMoutput"),
    ]


def test_each_task_has_its_own_resources() -> None:
    first, second, third = (task.resources for task in _tasks(tasks()))
    assert (first.cores, first.memory_mb, first.time_per_event_seconds, first.size_per_event_kb) == (1, 2500, 40, 1500)
    assert (second.cores, second.memory_mb, second.time_per_event_seconds, second.size_per_event_kb) == (4, 8000, 2, 100)
    assert (third.cores, third.memory_mb) == (1, 2500)
    assert typed(tasks()).resources == first
    assert [step.threads for step in typed(tasks()).steps] == [1, 4, 1]


def test_resources_from_the_assignment_win_by_task() -> None:
    first, second, third = (task.resources for task in _tasks(tasks(Memory={"Reco": 9000}, Multicore={"GenSim": 2, "Nano": 2})))
    assert (first.cores, second.cores, third.cores) == (2, 4, 2)
    assert (second.memory_mb, third.memory_mb) == (
        9000,
        4000,
    )  # a map leaves the others ReqMgr2's default of 2300 MB; the window raises it


def test_memory_outside_the_window_is_told_by_task() -> None:
    assert "MB per core" in problems(with_task(3, Memory=8000))["Task3.Memory"]


def test_the_first_task_does_the_work() -> None:
    made = typed(tasks()).generation
    assert made is not None
    assert (made.events, made.events_per_job, made.events_per_lumi) == (10_000, 1_000, 100)
    assert typed(with_task(1, EventsPerJob=..., EventsPerLumi=...)).generation.events_per_job == 1080  # type: ignore[union-attr]


def test_the_first_task_may_read_a_dataset_with_a_mask() -> None:
    spec = typed(
        with_task(
            1, RequestNumEvents=..., InputDataset="/JetHT/Run2012C-v1/RAW", SplittingAlgo="LumiBased", LumisPerJob=4,
            LumiList={"202205": [[1, 30]]}, PrimaryDataset=...,
        )
    )  # fmt: skip
    assert spec.generation is None
    assert spec.input is not None
    assert spec.input.lumi_list == {202205: ((1, 30),)}
    assert (spec.splitting.algorithm, spec.splitting.lumis_per_job) == (SplittingAlgo.LUMI_BASED, 4)
    assert {output.primary_dataset for output in spec.outputs} == {"JetHT"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 3_000), ({"EventsPerJob": ...}, 21_600), ({"EventsPerJob": ..., "TimePerEvent": 432}, 100),
        ({"SplittingAlgo": "EventBased"}, 3_000),
    ],
)  # fmt: skip
def test_a_later_task_is_cut_by_so_many_events(fields: dict[str, Any], expected: int) -> None:
    first, second, _ = _tasks(with_task(2, **fields))
    assert second.events_per_job == expected
    assert first.events_per_job == 0


def test_a_later_task_keeps_its_own_algorithm_and_number() -> None:
    *_, third = _tasks(with_task(3, SplittingAlgo="LumiBased", LumisPerJob=5))
    assert (third.algorithm, third.lumis_per_job) == (SplittingAlgo.LUMI_BASED, 5)
    *_, third = _tasks(with_task(3, SplittingAlgo="FileBased", FilesPerJob=4))
    assert (third.algorithm, third.files_per_job) == (SplittingAlgo.FILE_BASED, 4)
    *_, third = _tasks(with_task(3, SplittingAlgo=..., EventsPerJob=1250, EventsPerLumi=300))
    assert (third.algorithm, third.events_per_job) == (SplittingAlgo.EVENT_AWARE_LUMI_BASED, 1200)
    assert read(tasks()).spec.warnings == ()


def test_outputs_are_named_by_task_and_transient_modules_are_not_merged() -> None:
    assert [(output.step, output.module, output.dataset) for output in typed(tasks()).outputs] == [
        ("GenSim", "LHEoutput", "/MinBias_TuneCP5/Run3TestGS-140X_test-v1/LHE"),
        ("Reco", "ALCARECOoutput", "/MinBias_TuneCP5/Run3TestDR-TkAlMinBias-140X_test-v1/ALCARECO"),
        ("Reco", "AODSIMoutput", "/MinBias_TuneCP5/Run3TestDR-140X_test-v1/AODSIM"),
        ("Nano", "PREMIXRAWoutput", "/MinBias_TuneCP5/Run3TestNano-140X_test-v1/GEN-SIM-RAW"),
    ]


def test_a_task_has_the_primary_dataset_of_the_task_it_reads_unless_it_names_one() -> None:
    document = with_task(3, with_task(2, PrimaryDataset="Reprocessed"), InputTask="Reco", InputFromOutputModule="AODSIMoutput")
    assert [step.primary_dataset for step in read(document).steps] == ["MinBias_TuneCP5", "Reprocessed", "Reprocessed"]
    assert [step.primary_dataset for step in read(with_task(2, PrimaryDataset="Other")).steps][2] == "MinBias_TuneCP5"


def test_two_tasks_may_write_the_same_module_and_tier_but_not_the_same_dataset() -> None:
    same = with_task(3, ConfigCacheID="c" * 32)
    assert len(typed(same).outputs) == 5
    same["AcquisitionEra"]["Nano"] = "Run3TestDR"
    assert "both write /MinBias_TuneCP5/Run3TestDR" in incomplete(same)["Task3.KeepOutput"]


def test_a_task_may_be_transient_only_when_another_reads_it() -> None:
    assert [output.step for output in typed(with_task(1, KeepOutput=False, TransientOutputModules=...)).outputs] == [
        "Reco", "Reco", "Nano",
    ]  # fmt: skip
    assert "no task reads" in problems(with_task(2, KeepOutput=False))["Task2.KeepOutput"]


def test_an_ignored_module_cannot_be_read() -> None:
    found = incomplete(with_task(1, IgnoredOutputModules=["RAWSIMoutput"], TransientOutputModules=...))
    assert "so it is not there to be read" in found["Task2.InputFromOutputModule"]


def test_a_dropped_module_that_no_task_has_is_refused() -> None:
    assert (
        "no output module of GenSim"
        in incomplete(with_task(1, TransientOutputModules=["RAWoutput"]))["Task1.TransientOutputModules"]
    )
    assert "no output module of any step" in incomplete(tasks(IgnoredOutputModules=["Nothing"]))["IgnoredOutputModules"]


def test_modules_ignored_at_the_top_are_ignored_in_every_task() -> None:
    spec = typed(tasks(IgnoredOutputModules=["ALCARECOoutput", "LHEoutput"]))
    assert [output.module for output in spec.outputs] == ["AODSIMoutput", "PREMIXRAWoutput"]


def test_nothing_kept_is_refused() -> None:
    document = with_task(
        1, tasks(TaskChain=1, Task2=..., Task3=..., AcquisitionEra="Era"), TransientOutputModules=["RAWSIMoutput", "LHEoutput"]
    )
    assert incomplete(document) == {"KeepOutput": "no output of any step is kept"}


@pytest.mark.parametrize("source", ["Nano", "Nowhere"])
def test_a_task_reads_an_earlier_task(source: str) -> None:
    assert "no earlier task" in problems(with_task(2, InputTask=source))["Task2.InputTask"]


def test_the_parts_of_another_chain_are_refused() -> None:
    found = problems(tasks(Step1={"StepName": "x"}, StepChain=1))
    assert found == {"Step1": "is not one of the 3 task(s) that TaskChain says", "StepChain": "has no meaning in a TaskChain"}


@pytest.mark.parametrize("field", ["LumiList", "RunWhitelist", "BlockWhitelist", "IncludeParents"])
def test_what_is_wanted_of_the_input_belongs_to_the_first_task(field: str) -> None:
    value = {"LumiList": {"1": [[1, 2]]}, "IncludeParents": True}.get(
        field, [1] if field == "RunWhitelist" else ["/a/b-v1/RAW#1"]
    )
    assert (
        problems(with_task(2, **{field: value}))[f"Task2.{field}"] == f"has no effect after the first; give it as Task1.{field}"
    )


def test_the_planner_cuts_the_first_task() -> None:
    spec = prepare_plan_spec(tasks(), files_given=False)
    assert spec.generation is not None
    assert spec.generation.events_per_job == 1_000
    untyped = prepare_plan_spec(tasks(RequestType=...), files_given=False)
    assert untyped.generation == spec.generation
