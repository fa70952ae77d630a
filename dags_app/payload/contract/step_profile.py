"""``step_profile.json``: how each step runs inside a job's slot, as WMS2 sized it from what earlier jobs measured (spec 5.4).

Owns its schema. It may differ between submissions of one DAG, so it is no part of ``job.json``: a rescue gets another
``version``. A step that is not in it runs as ``job.json`` says, one process with the step's own threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from .convert import read
from .layout import STEP_PROFILE_FILE, STEP_PROFILE_SCHEMA
from .reading import load_document


@dataclass(frozen=True)
class StepRun:
    """One step inside a slot: so many cmsRun side by side, each on its part of the job's events.

    ``rss_mb``: what one process is expected to take at its peak, margin included; 0 when that is unknown. The payload starts no
    more processes than fit the slot's memory and cores.
    """

    processes: int
    threads: int  # of each process; all together may be more than the slot's cores (overcommit)
    rss_mb: int = 0

    def problem(self) -> str:
        """What is wrong with the numbers."""
        return "" if self.processes >= 1 and self.threads >= 1 and self.rss_mb >= 0 else "processes and threads are at least 1"

    def at(self, attempt: int) -> StepRun:
        """With half the processes at each further attempt (from 0): what ran out of memory must not do so again."""
        return replace(self, processes=max(1, self.processes >> min(attempt, 30)))


@dataclass(frozen=True)
class StepProfile:
    """The profile of one submission; ``version`` counts submissions that brought another one, from 0 (nothing measured yet)."""

    SCHEMA: ClassVar[str] = STEP_PROFILE_SCHEMA

    version: int = 0
    steps: dict[str, StepRun] = field(default_factory=dict)


def read_step_profile(directory: Path) -> StepProfile:
    """Read it; PayloadError names the field that is wrong. A DAG of an older payload has none: nothing is changed then."""
    if not (directory / STEP_PROFILE_FILE).is_file() or not (directory / STEP_PROFILE_FILE).stat().st_size:
        return StepProfile()
    return read(load_document(directory / STEP_PROFILE_FILE, STEP_PROFILE_SCHEMA), StepProfile)
