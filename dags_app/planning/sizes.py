"""What each submission of a DAG brings anew: the memory its jobs ask for, and how their steps run (spec 5.3, 5.5; docs/adr/0071).

Pure. ``sizes.inc`` is read by HTCondor as a node is submitted, ``step_profile.json`` goes with the job; neither is among the
rendered, immutable files. The writer's callers keep the value in ``DAG.sizes``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from dags_app.payload.contract import layout
from dags_app.payload.contract.convert import to_json
from dags_app.payload.contract.step_profile import StepProfile
from dags_app.planning.levels import FIRST_TASK, later_tasks
from dags_app.planning.sizing import task_resources
from dags_app.planning.specs import WorkflowSpec


@dataclass(frozen=True, slots=True)
class Sizes:
    """Memory in MB of a job by task, and the step profile."""

    memory_mb: dict[int, int] = field(default_factory=dict)
    profile: StepProfile = field(default_factory=StepProfile)

    def files(self) -> dict[str, str]:
        """Name in the DAG's directory -> text."""
        macros = "".join(f"{memory_macro(task)} = {memory}\n" for task, memory in sorted(self.memory_mb.items()))
        return {
            layout.SIZES_INCLUDE: macros,
            layout.STEP_PROFILE_FILE: json.dumps(to_json(self.profile), indent=1) + "\n",
        }


_ADAPTER = TypeAdapter(Sizes)


def memory_macro(task: int) -> str:
    """The macro of ``sizes.inc`` that holds a task's memory."""
    return f"TASK_{task}_MEMORY_MB"


def sizes_of(workflow: WorkflowSpec, profile: StepProfile) -> Sizes:
    """What the jobs of a workflow ask for."""
    tasks = (FIRST_TASK, *(task.number for task in later_tasks(workflow)))
    return Sizes({task: task_resources(workflow, task).memory_mb for task in tasks}, profile)


def after(before: Sizes, now: Sizes) -> Sizes:
    """``now``, its profile with the version that follows ``before``'s: one higher if it says anything else."""
    changed = now.profile.steps != before.profile.steps
    return replace(now, profile=replace(now.profile, version=before.profile.version + changed))


def sizes_to_json(sizes: Sizes) -> dict[str, Any]:
    """The form kept in the row."""
    dumped: dict[str, Any] = _ADAPTER.dump_python(sizes, mode="json")
    return dumped


def sizes_from_json(kept: Mapping[str, Any]) -> Sizes:
    """Out of the row."""
    return _ADAPTER.validate_python(kept)
