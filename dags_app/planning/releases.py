"""What releases were built for, out of CMS's own list of them (``releases.map`` of CVMFS). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dags_app.planning.specs import StepSpec

_LEVEL = re.compile(r"x86-64-v(\d+)")
#: (architecture, release) -> the least level of x86-64 that it runs on.
Levels = Mapping[tuple[str, str], int]


def read_levels(text: str) -> Levels:
    """Of each line ``architecture=...;label=...;...;default_micro_arch=x86-64-v3;`` that names a level."""
    found = {}
    for line in text.splitlines():
        values = dict(part.partition("=")[::2] for part in line.split(";") if "=" in part)
        level = _LEVEL.fullmatch(values.get("default_micro_arch", ""))
        if level is not None:
            found[values.get("architecture", ""), values.get("label", "")] = int(level[1])
    return found


def with_levels(steps: Sequence[StepSpec], levels: Levels) -> tuple[StepSpec, ...]:
    """Steps with the level that they need, whichever of their architectures a job takes."""
    return tuple(
        replace(step, microarch=max((levels.get((arch, step.cmssw_version), 0) for arch in step.scram_arch), default=0))
        for step in steps
    )
