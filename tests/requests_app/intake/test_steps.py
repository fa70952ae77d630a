"""The chain of steps, and the resources the whole job gets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.intake import chain, problems, read, reprocessing, with_step
from wms2.conf import Limits


def test_steps_carry_what_a_job_runs() -> None:
    document = with_step(
        2, chain(EventStreams=2), CMSSWVersion="CMSSW_14_0_1_patch2", ScramArch="el9_amd64_gcc13", Multicore=8, EventStreams=0
    )
    gen, digi, reco = (step.spec for step in read(document).steps)
    assert (gen.number, gen.name, gen.cmssw_version, gen.scram_arch) == (1, "Gen", "CMSSW_14_0_0", ("el8_amd64_gcc12",))
    assert (gen.threads, gen.event_streams, gen.input_step, gen.input_module) == (4, 2, None, None)
    assert (digi.cmssw_version, digi.scram_arch, digi.threads, digi.event_streams) == (
        "CMSSW_14_0_1_patch2", ("el9_amd64_gcc13",), 8, 0,
    )  # fmt: skip
    assert (digi.input_step, digi.input_module, digi.keep_output) == ("Gen", "RAWSIMoutput", False)
    assert (reco.input_step, reco.keep_output, reco.config_cache_id) == ("Digi", True, "c" * 32)


def test_a_reprocessing_is_one_step() -> None:
    (step,) = read(reprocessing()).steps
    assert (step.spec.name, step.spec.number, step.spec.input_step, step.prefix) == ("DataProcessing", 1, None, "")


def test_a_step_may_read_any_earlier_step() -> None:
    document = with_step(3, InputStep="Gen", InputFromOutputModule="RAWSIMoutput")
    assert read(document).steps[2].spec.input_step == "Gen"


@pytest.mark.parametrize("input_step", ["Reco", "Nowhere"])
def test_a_step_cannot_read_itself_or_a_stranger(input_step: str) -> None:
    assert "no earlier step" in problems(with_step(3, InputStep=input_step))["Step3.InputStep"]


def test_a_step_that_says_not_what_it_reads_is_refused() -> None:
    assert problems(with_step(2, InputStep=..., InputFromOutputModule=...)) == {
        "Step2.InputStep": "is missing",
        "Step2.InputFromOutputModule": "is missing",
    }


def test_the_first_step_reads_no_step() -> None:
    assert set(problems(with_step(1, InputStep="Reco"))) == {"Step1.InputStep"}


def test_two_steps_of_one_name_are_refused() -> None:
    assert "already the name of Step1" in problems(with_step(2, StepName="Gen"))["Step2.StepName"]


def test_a_count_above_the_steps_is_refused_by_the_missing_step() -> None:
    assert problems(chain(StepChain=4)) == {"Step4": "is missing: StepChain says 4"}


def test_a_count_below_the_steps_is_refused_by_the_surplus_step() -> None:
    assert set(problems(chain(StepChain=2, AcquisitionEra="E", ProcessingString="s"))) == {"Step3", "Step2.KeepOutput"}


@pytest.mark.parametrize("step", ["text", 3, [], True])
def test_a_step_that_is_no_map_is_refused(step: Any) -> None:
    assert set(problems(chain(Step2=step))) == {"Step2"}
    assert set(problems(chain(Step1=step))) == {"Step1"}


def test_tasks_have_no_place_in_a_chain() -> None:
    assert "Task1" in problems(chain(Task1={"TaskName": "x"}))
    assert set(problems(reprocessing(Step1={"StepName": "x"}, StepChain=1))) == {"Step1", "StepChain"}


def test_the_last_output_must_be_kept() -> None:
    assert problems(with_step(3, KeepOutput="False")) == {"Step3.KeepOutput": "the last step's output must be kept"}


def test_outputs_are_kept_unless_the_step_says_otherwise() -> None:
    assert [step.spec.keep_output for step in read(with_step(2, KeepOutput=...)).steps] == [True, True, True]


def test_memory_and_cores_are_the_largest_of_the_steps() -> None:
    document = with_step(1, chain(Memory=8000, Multicore=1), Multicore=8, Memory=6000)
    with_step(2, document, Multicore=4, Memory=20_000)
    with_step(3, document, Multicore=8)
    resources = read(document).spec.resources
    assert (resources.cores, resources.memory_mb) == (8, 20_000)


@pytest.mark.parametrize(
    ("memory", "cores", "granted"),
    [
        (2300, 1, 2300), (1000, 1, 2000), (3000, 1, 3000), (24_000, 8, 24_000), (16_001.5, 8, 16_002), (1, 8, 16_000),
        (..., 1, 2300),
    ],
)  # fmt: skip
def test_memory_is_brought_into_the_window(memory: Any, cores: int, granted: int) -> None:
    assert read(chain(Memory=memory, Multicore=cores)).spec.resources.memory_mb == granted


def test_more_memory_per_core_than_sites_offer_is_refused_with_the_reason() -> None:
    found = problems(chain(Memory=8000, Multicore=1))
    assert set(found) == {"Memory"}
    assert re.search(r"Memory 8000 MB with Multicore 1 is 8000 MB per core.*at most 3000 MB.*3 cores", found["Memory"])


def test_the_window_is_the_installations() -> None:
    wide = Limits(default_memory_per_core_mb=4000, max_memory_per_core_mb=8000)
    assert read(chain(Memory=8000, Multicore=1), limits=wide).spec.resources.memory_mb == 8000
    assert read(chain(Memory=1000, Multicore=2), limits=wide).spec.resources.memory_mb == 8000


def test_reqmgr2s_defaults_hold_where_the_document_is_silent() -> None:
    resources = read(chain(TimePerEvent=..., SizePerEvent=...)).spec.resources
    assert (resources.time_per_event_seconds, resources.size_per_event_kb) == (12.0, 512.0)


@pytest.mark.parametrize(
    ("priority", "is_legal"), [(0, True), (999_999, True), (1_000_000, False), (-1, False), ("600000", True)]
)
def test_priorities_are_those_of_reqmgr2(priority: Any, is_legal: bool) -> None:
    document = chain(RequestPriority=priority)
    if is_legal:
        assert read(document).identity.priority == int(priority)
    else:
        assert "RequestPriority" in problems(document)


def test_steps_that_no_machine_runs_together_are_refused_and_those_of_two_systems_warned_of() -> None:
    reported = problems(with_step(2, ScramArch=["el8_aarch64_gcc11"]))
    assert reported.keys() == {"Step2.ScramArch"}
    assert "runs on aarch64, what comes before it on X86_64" in reported["Step2.ScramArch"]
    (warning,) = read(with_step(2, ScramArch=["slc7_amd64_gcc700"])).spec.warnings
    assert warning.startswith("Step2.ScramArch: runs on rhel7, what comes before it on rhel8") and "50513" in warning
    assert not read(with_step(2, ScramArch=["slc7_amd64_gcc700", "el8_amd64_gcc11"])).spec.warnings


def test_merged_sizes_must_fit_each_other() -> None:
    assert "MinMergeSize" in problems(chain(MinMergeSize=100, MaxMergeSize=10))
    assert read(chain(MinMergeSize="10", MaxMergeSize=100.0)).spec.max_merge_bytes == 100
