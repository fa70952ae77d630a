"""GPUs as ReqMgr2 asks for them, RequiresGPU and GPUParams (JSON text). Owns reading them, and what steps of one job ask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dags_app.planning.gpus import version_of
from dags_app.planning.specs import GpuSpec
from requests_app.intake.chain import Part
from requests_app.intake.findings import Findings
from requests_app.intake.values import Unreadable, choice, from_json, mapping, shown, whole

_CHOICES = ("forbidden", "optional", "required")
_VERSION = re.compile(r"\d{1,4}(\.\d{1,6}){0,3}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,99}", re.ASCII)
_MAX_MEMORY_MB = 10_000_000
_MAX_CAPABILITIES = 100
#: ``CUDARuntimeVersion`` is a spelling of ``CUDARuntime`` that ReqMgr2 accepts beside it.
_PARAMS = ("GPUMemoryMB", "CUDARuntime", "CUDACapabilities", "GPUName", "CUDADriverVersion", "CUDARuntimeVersion")


def read_gpu(part: Part) -> GpuSpec | None:
    """What one step or task asks of GPUs; None when it asks for none."""
    asked = part.read_inherited("RequiresGPU", choice(*_CHOICES), _CHOICES[0])
    if asked == _CHOICES[0]:
        return None
    holder = part.document if part.own.get("GPUParams") in (None, "", "null") else part
    return replace(holder.read("GPUParams", _params, GpuSpec(required=False)), required=asked == "required")


def together(found: Sequence[GpuSpec | None], findings: Findings) -> GpuSpec | None:
    """What a job of several steps asks: the steps that require one decide, else those that may use one.

    Memory and versions are the largest; capabilities are those that every step allows; a name is one name.
    """
    asked = [spec for spec in found if spec is not None]
    asked = [spec for spec in asked if spec.required] or asked
    if not asked:
        return None
    names = sorted({spec.name for spec in asked if spec.name})
    if len(names) > 1:
        findings.problem("GPUParams", f"the steps of one job name different GPUs: {', '.join(names)}")
    return GpuSpec(
        required=asked[0].required,
        memory_mb=max(spec.memory_mb for spec in asked),
        runtime=max((spec.runtime for spec in asked), key=version_of),
        capabilities=_common_capabilities(asked, findings),
        name=names[0] if names else "",
        driver_version=max((spec.driver_version for spec in asked), key=version_of),
    )


def _common_capabilities(asked: Sequence[GpuSpec], findings: Findings) -> tuple[str, ...]:
    listed = [set(spec.capabilities) for spec in asked if spec.capabilities]
    if not listed:
        return ()
    common = set.intersection(*listed)
    if not common:
        findings.problem("GPUParams", "no CUDA capability is allowed by all steps of one job")
    return tuple(sorted(common, key=version_of))


def _params(value: object) -> GpuSpec:
    value = from_json(value, f"a JSON object with {', '.join(_PARAMS[:3])}")
    if value is None:
        return GpuSpec(required=False)
    params = mapping(value)
    unknown = sorted(set(params) - set(_PARAMS))
    if unknown:
        raise Unreadable(f"holds {shown(unknown[0])}, which is not one of {', '.join(_PARAMS)}")
    capabilities = params.get("CUDACapabilities") or []
    if not isinstance(capabilities, list) or len(capabilities) > _MAX_CAPABILITIES:
        raise Unreadable(f"CUDACapabilities must be a list of versions, not {shown(capabilities)}")
    name = params.get("GPUName") or ""
    if name and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise Unreadable(f"GPUName {shown(name)} is no name of a GPU: letters, digits, blanks and ._()/+-")
    memory = params.get("GPUMemoryMB")
    return GpuSpec(
        required=False,
        memory_mb=0 if memory is None else whole(1, _MAX_MEMORY_MB)(memory),
        runtime=_version("CUDARuntime", params.get("CUDARuntime") or params.get("CUDARuntimeVersion")),
        capabilities=tuple(sorted({_version("CUDACapabilities", one) for one in capabilities}, key=version_of)),
        name=str(name),
        driver_version=_version("CUDADriverVersion", params.get("CUDADriverVersion")),
    )


def _version(what: str, value: object) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise Unreadable(f"{what} must be a version like 11.2, not {shown(value)}")
    return value
