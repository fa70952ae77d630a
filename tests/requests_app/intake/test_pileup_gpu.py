"""Pileup, GPUs, extra requirements and dropped modules as documents name them."""

from __future__ import annotations

import json

from dags_app.payload.contract.documents import Pileup
from dags_app.planning.specs import GpuSpec
from tests.support.intake import chain, problems, read, reprocessing, tasks, typed, with_step, with_task

_PREMIX = "/Neutrino_E-10_gun/Run3-PremixPU-v2/PREMIX"
_PARAMS = {"GPUMemoryMB": 8000, "CUDARuntime": "11.2", "CUDACapabilities": ["7.5", "8.0", "10.0"]}


def test_each_step_mixes_its_own_pileup() -> None:
    spec = typed(with_step(2, with_step(3, DataPileup="/ZeroBias/Run3-v1/RAW"), MCPileup=_PREMIX, DeterministicPileup=True))
    assert [step.pileup for step in spec.steps] == [(), (Pileup("mc", _PREMIX),), (Pileup("data", "/ZeroBias/Run3-v1/RAW"),)]
    assert [step.deterministic_pileup for step in spec.steps] == [False, True, False]
    assert not spec.trust_pileup_sitelists


def test_deterministic_pileup_may_be_said_once_for_all_steps() -> None:
    assert all(step.spec.deterministic_pileup for step in read(chain(DeterministicPileup=True)).steps)


def test_trusted_pileup_reaches_the_planner() -> None:
    assert typed(with_step(2, chain(TrustPUSitelists=True), MCPileup=_PREMIX)).trust_pileup_sitelists


def test_pileup_at_the_top_of_a_chain_belongs_to_no_step() -> None:
    assert problems(chain(MCPileup=_PREMIX)) == {
        "MCPileup": "has no effect at the top of a chain; give it in the step that mixes it"
    }
    assert "give it in the task" in problems(tasks(DataPileup=_PREMIX))["DataPileup"]
    assert typed(reprocessing(DataPileup=_PREMIX)).steps[0].pileup == (Pileup("data", _PREMIX),)


def test_pileup_that_is_no_dataset_is_refused() -> None:
    assert "legal dataset" in problems(with_step(2, MCPileup="premix"))["Step2.MCPileup"]


def test_a_required_gpu_comes_with_its_parameters() -> None:
    gpu = read(chain(RequiresGPU="required", GPUParams=json.dumps(_PARAMS))).spec.resources.gpu
    assert gpu == GpuSpec(required=True, memory_mb=8000, runtime="11.2", capabilities=("7.5", "8.0", "10.0"))


def test_parameters_may_stand_in_the_step_and_beside_them_a_name() -> None:
    params = json.dumps({**_PARAMS, "GPUName": "NVIDIA L40S", "CUDADriverVersion": "535.104"})
    gpu = read(with_step(2, chain(GPUParams="null"), RequiresGPU="required", GPUParams=params)).spec.resources.gpu
    assert gpu is not None
    assert (gpu.name, gpu.driver_version) == ("NVIDIA L40S", "535.104")


def test_the_steps_of_one_job_ask_together() -> None:
    document = with_step(
        2,
        with_step(3, RequiresGPU="required", GPUParams=json.dumps({**_PARAMS, "CUDARuntime": "11.10", "GPUMemoryMB": 4000})),
        RequiresGPU="required",
        GPUParams=json.dumps({**_PARAMS, "CUDACapabilities": ["8.0", "9.0"]}),
    )
    gpu = read(with_step(1, document, RequiresGPU="optional")).spec.resources.gpu
    assert gpu == GpuSpec(required=True, memory_mb=8000, runtime="11.10", capabilities=("8.0",))


def test_steps_that_no_gpu_can_serve_together_are_refused() -> None:
    apart = [{**_PARAMS, "CUDACapabilities": [one], "GPUName": name} for one, name in (("7.5", "T4"), ("8.0", "L40S"))]
    document = with_step(2, with_step(3, RequiresGPU="required", GPUParams=apart[0]), RequiresGPU="required", GPUParams=apart[1])
    found = problems(document)["GPUParams"]
    assert "different GPUs: L40S, T4" in found
    assert "no CUDA capability" in found


def test_each_task_asks_for_itself() -> None:
    spec = typed(with_task(2, RequiresGPU="optional", GPUParams=json.dumps(_PARAMS)))
    assert [task.resources.gpu is None for task in spec.tasks] == [True, False, True]
    assert spec.tasks[1].resources.gpu is not None
    assert not spec.tasks[1].resources.gpu.required


def test_parameters_without_a_wish_are_not_looked_at() -> None:
    assert read(chain(RequiresGPU="forbidden", GPUParams="{")).spec.resources.gpu is None


def test_an_extra_requirement_is_kept_as_it_is() -> None:
    expression = 'regexp("^NVIDIA L40S$", GPUs_DeviceName) && (Memory > 1024 || TotalCpus >= 8)'
    assert typed(chain(JobExtraMatchRequirements=expression)).extra_requirements == expression


def test_a_task_may_have_an_extra_requirement_of_its_own_in_place_of_the_documents() -> None:
    """As the GPU validation of releases asks: one task on certain GPUs, the others anywhere."""
    gpu, cpus = 'regexp("^NVIDIA L40S$", GPUs_DeviceName)', "TotalCpus >= 8"
    spec = typed(with_task(2, JobExtraMatchRequirements=gpu))
    assert [task.extra_requirements for task in spec.tasks] == ["", gpu, ""]
    both = typed(with_task(2, tasks(JobExtraMatchRequirements=cpus), JobExtraMatchRequirements=gpu))
    assert (both.extra_requirements, [task.extra_requirements for task in both.tasks]) == (cpus, ["", gpu, ""])
    assert set(problems(with_task(2, JobExtraMatchRequirements="true) || (true"))) == {"Task2.JobExtraMatchRequirements"}


def test_dropped_modules_of_a_reprocessing_are_not_merged() -> None:
    assert [output.module for output in typed(reprocessing(TransientOutputModules=["AODoutput"])).outputs] == ["MINIAODoutput"]
