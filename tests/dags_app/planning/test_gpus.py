"""GPUs in submit files: HTCondor's commands, CMS's attributes, and that condor_submit takes them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dags_app.planning.cms_ads import NodeRole
from dags_app.planning.gpus import gpu_lines, version_of
from dags_app.planning.specs import DagSpec, GpuSpec, TaskSpec
from dags_app.planning.submitfiles import landing_submit, node_submit
from tests.support.planning import dag_spec

FULL = GpuSpec(
    required=True, memory_mb=8000, runtime="11.2", capabilities=("7.5", "8.0", "10.0"), name="NVIDIA L40S", driver_version="12.2"
)


def _with(gpu: GpuSpec | None, **fields: object) -> DagSpec:
    spec = dag_spec()
    workflow = replace(spec.workflow, resources=replace(spec.workflow.resources, gpu=gpu), **fields)  # type: ignore[arg-type]
    return replace(spec, workflow=workflow)


def test_a_required_gpu_is_asked_of_htcondor_and_told_to_the_pool() -> None:
    assert gpu_lines(FULL).splitlines() == [
        "request_gpus = 1",
        "gpus_minimum_memory = 8000",
        "gpus_minimum_capability = 7.5",
        "gpus_minimum_runtime = 11.2",
        'require_gpus = (Capability == 7.5 || Capability == 8.0 || Capability == 10.0) && DeviceName == "NVIDIA L40S"'
        " && DriverVersion >= 12.2",
        "My.RequiresGPU = 1",
        "My.GPUMemoryMB = 8000",
        "My.DESIRED_GPUMemoryMB = 8000",
        'My.CUDACapability = "10.0,7.5,8.0"',
        "My.DESIRED_GPUMinimumCapability = 7.5",
        "My.DESIRED_GPUMaximumCapability = 10.0",
        'My.CUDARuntime = "11.2"',
        "My.DESIRED_GPURuntime = 11.2",
        'My.CUDADriverVersion = "12.2"',
    ]


def test_a_makers_driver_release_is_told_but_not_compared_with_cuda_versions() -> None:
    lines = gpu_lines(GpuSpec(required=True, driver_version="535.104"))

    assert "require_gpus" not in lines
    assert 'My.CUDADriverVersion = "535.104"' in lines


def test_a_tasks_own_requirement_is_its_jobs_alone_and_a_landing_asks_for_what_all_tasks_share() -> None:
    gpu, cpus = 'regexp("^NVIDIA L40S$", GPUs_DeviceName)', "TotalCpus >= 8"
    resources = dag_spec().workflow.resources
    tasks = tuple(TaskSpec(n, f"T{n}", (), resources, extra_requirements=own) for n, own in ((1, ""), (2, gpu), (3, "")))
    asked = {}
    for above in ("", cpus):
        spec = _with(None, tasks=tasks, extra_requirements=above)
        texts = [
            landing_submit(spec),
            *(node_submit(spec, NodeRole.PROCESSING, n) for n in (1, 2, 3)),
            node_submit(spec, NodeRole.MERGE),
        ]
        asked[above] = [[each for each in (cpus, gpu) if f" && ({each})" in text] for text in texts]
    assert asked[""] == [[], [], [gpu], [], []]
    assert asked[cpus] == [[], [cpus], [gpu], [cpus], []], "no slot need meet what two tasks ask for"
    same = _with(None, tasks=tuple(replace(each, extra_requirements=gpu) for each in tasks), extra_requirements=cpus)
    assert f" && ({gpu})\n" in landing_submit(same)


def test_a_gpu_without_parameters_is_any() -> None:
    assert gpu_lines(GpuSpec(required=True)) == "request_gpus = 1\nMy.RequiresGPU = 1\n"


def test_an_optional_gpu_is_not_asked_for() -> None:
    assert gpu_lines(replace(FULL, required=False)) == "My.RequiresGPU = 0\n"
    assert gpu_lines(None) == ""


@pytest.mark.parametrize(
    "wrong",
    [{"name": 'x" || true'}, {"name": "a\nb"}, {"runtime": "11; queue"}, {"capabilities": ("8.x",)}, {"driver_version": "$(X)"}],
)
def test_what_could_change_the_submit_file_is_not_rendered(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"version|runtime|GPU name"):
        gpu_lines(replace(GpuSpec(required=True), **wrong))  # type: ignore[arg-type]


def test_versions_count_as_numbers() -> None:
    assert sorted(["8.10", "8.9", "", "11.2"], key=version_of) == ["", "8.9", "8.10", "11.2"]


def test_landing_and_processing_ask_for_the_gpu_and_merge_does_not() -> None:
    spec = _with(FULL)

    assert gpu_lines(FULL) in node_submit(spec, NodeRole.PROCESSING)
    assert gpu_lines(FULL) in landing_submit(spec)
    assert "gpu" not in node_submit(spec, NodeRole.MERGE).lower()
    assert "gpu" not in landing_submit(_with(None)).lower()


def test_a_unit_lands_where_its_most_demanding_task_finds_a_gpu() -> None:
    spec = _with(None)
    small, large = replace(FULL, memory_mb=1), FULL
    tasks = tuple(
        TaskSpec(number, f"T{number}", (f"T{number}",), replace(spec.workflow.resources, gpu=gpu))
        for number, gpu in enumerate((None, small, replace(FULL, required=False, memory_mb=99_999), large), start=1)
    )

    landing = landing_submit(replace(spec, workflow=replace(spec.workflow, tasks=tasks)))
    assert gpu_lines(large) in landing and "\nrequest_gpus = 1\n" in landing
    assert "gpu" not in landing_submit(spec).lower()


def test_extra_requirements_stand_in_brackets_behind_our_own() -> None:
    spec = _with(None, extra_requirements='regexp("^NVIDIA L40S$", GPUs_DeviceName)')

    for text in (landing_submit(spec), node_submit(spec, NodeRole.PROCESSING)):
        (line,) = [line for line in text.splitlines() if line.startswith("requirements")]
        assert line.endswith(' && (regexp("^NVIDIA L40S$", GPUs_DeviceName))')
        assert "stringListMember" in line
    assert "L40S" not in node_submit(spec, NodeRole.MERGE)


def test_condor_submit_takes_the_lines(tmp_path: Path) -> None:
    program = shutil.which("condor_submit")
    if program is None:
        pytest.skip("condor_submit is not here: the lines are not tried on HTCondor itself")
    extra = 'requirements = true && (regexp("^NVIDIA L40S$", GPUs_DeviceName))\n'
    (tmp_path / "gpu.sub").write_text(f"executable = /bin/true\ntransfer_executable = False\n{gpu_lines(FULL)}{extra}queue\n")
    config = tmp_path / "condor_config"
    config.write_text(f"LOCAL_DIR = {tmp_path}\nSCHEDD_HOST = none\n")

    done = subprocess.run(
        [program, "-dry-run", "out.ads", "-disable", "gpu.sub"],
        cwd=tmp_path,
        env={"CONDOR_CONFIG": str(config), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    ad = (tmp_path / "out.ads").read_text()
    assert "RequestGPUs=1" in ad
    assert "RequireGPUs=" in ad
    assert "GlobalMemoryMb >= GPUsMinMemory" in ad or "GlobalMemoryMb >= 8000" in ad
