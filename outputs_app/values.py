"""Plain values that other apps hand to outputs_app. No rows, no services."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """An output dataset with everything DBS wants to know of it (docs/design/services.md, DBS)."""

    name: str  # /Primary/Era-Proc-vN/TIER
    step: str
    module: str
    tier: str
    primary_dataset: str
    processed_dataset: str
    acquisition_era: str
    processing_version: int
    release: str
    pset_hash: str
    global_tag: str
    prep_id: str
    primary_ds_type: str
    physics_group: str
    parents: tuple[str, ...] = ()  # datasets it was made from, for a chain of steps; its files then name no parents


class BlockLimits(NamedTuple):
    """When a block takes no more units."""

    max_bytes: int
    max_files: int
    max_events: int
    max_wait_seconds: float  # since its first file
    max_lumis: int = 100_000


class BlocksDue(NamedTuple):
    """Whether a workflow's blocks have to be checked because of their contents, and when next because of time alone."""

    changed: bool
    first: datetime | None

    def by(self, now: datetime) -> bool:
        """Whether it is so at this moment."""
        return self.changed or (self.first is not None and self.first <= now)


class MergedFile(NamedTuple):
    """One merged file of a unit's manifest. ``lumis``: run -> ((lumi, events or None), ...)."""

    dataset: str
    lfn: str
    rse: str
    size_bytes: int
    adler32: str
    events: int
    lumis: dict[str, tuple[tuple[int, int | None], ...]]
    parents: tuple[str, ...] = ()


class UnitOutputs(NamedTuple):
    """What one completed unit brought."""

    unit_id: int
    unit_name: str
    files: tuple[MergedFile, ...] = ()
