"""GPUs in submit files: HTCondor's own commands and the attributes that CMS's pool matches on. Pure text.

``request_gpus`` with ``gpus_minimum_*`` and ``require_gpus`` make HTCondor hand out a fitting device; ``RequiresGPU``,
``GPUMemoryMB``, ``CUDACapability`` and ``CUDARuntime`` are what glideins and their factories look at, spelled as WMAgent did, and
``DESIRED_GPU…`` as it does.
Only required GPUs are asked for: an optional one is neither requested nor matched on, so the job runs anywhere. Spec 4.5.
"""

from __future__ import annotations

import re

from dags_app.planning.cms_ads import plain
from dags_app.planning.specs import GpuSpec

#: HTCondor reports the CUDA version of a driver (12.2). Larger numbers are the maker's release (535.104), which it does not know.
_FIRST_NVIDIA_RELEASE = 100
_VERSION = re.compile(r"\d+(\.\d+){0,3}", re.ASCII)
#: Device names have blanks and brackets, and nothing that a submit file or a ClassAd string reads otherwise.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]*", re.ASCII)


def version_of(text: str) -> tuple[int, ...]:
    """A dotted version for comparing: ``"8.10"`` is above ``"8.9"``; empty text is below all."""
    if text and not _VERSION.fullmatch(text):
        raise ValueError(f"no version: {text!r}")
    return tuple(int(part) for part in text.split(".")) if text else ()


def gpu_lines(gpu: GpuSpec | None) -> str:
    """Submit commands of a job that runs with ``gpu``; each line ends with a line end. Empty for no GPU."""
    if gpu is None:
        return ""
    if not gpu.required:
        return "My.RequiresGPU = 0\n"
    bounds = [_two_parts(one) for one in (*gpu.capabilities[:1], *gpu.capabilities[-1:])] or ["", ""]
    runtime = _two_parts(gpu.runtime) if gpu.runtime else ""
    listed = ",".join(sorted(plain(one, "CUDA capability") for one in gpu.capabilities))
    values = {
        "request_gpus": "1",
        "gpus_minimum_memory": gpu.memory_mb,
        "gpus_minimum_capability": bounds[0],
        "gpus_minimum_runtime": runtime,
        "require_gpus": _require_gpus(gpu),
        "My.RequiresGPU": "1",
        "My.GPUMemoryMB": gpu.memory_mb,
        "My.DESIRED_GPUMemoryMB": gpu.memory_mb,
        "My.CUDACapability": f'"{listed}"' if listed else "",
        "My.DESIRED_GPUMinimumCapability": bounds[0],
        "My.DESIRED_GPUMaximumCapability": bounds[1],
        "My.CUDARuntime": f'"{plain(gpu.runtime, "CUDA runtime")}"' if gpu.runtime else "",
        "My.DESIRED_GPURuntime": runtime,
        "My.CUDADriverVersion": f'"{plain(gpu.driver_version, "CUDA driver version")}"' if gpu.driver_version else "",
    }
    return "".join(f"{name} = {value}\n" for name, value in values.items() if value)


def _require_gpus(gpu: GpuSpec) -> str:
    """What no command of its own says: the exact capabilities, the device's name, the driver. Over properties of one device."""
    clauses = []
    if len(gpu.capabilities) > 1:  # the lowest is a command; the list leaves out what lies between
        listed = " || ".join(f"Capability == {_two_parts(one)}" for one in gpu.capabilities)
        clauses.append(f"({listed})")
    if gpu.name:
        if not _NAME.fullmatch(gpu.name):
            raise ValueError(f"GPU name {gpu.name!r} has characters that cannot stand in a submit file")
        clauses.append(f'DeviceName == "{gpu.name}"')
    driver = version_of(gpu.driver_version)
    if driver and driver[0] < _FIRST_NVIDIA_RELEASE:
        clauses.append(f"DriverVersion >= {_two_parts(gpu.driver_version)}")
    return " && ".join(clauses)


def _two_parts(version: str) -> str:
    """A version as the number that HTCondor's discovery reports: major.minor."""
    major, minor = (*version_of(version), 0)[:2]
    return f"{major}.{minor}"
