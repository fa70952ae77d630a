"""Which processing block each work unit goes to, per output dataset.

Blocks belong to the workflow and stay open over rounds; a block takes units until the next one would pass the target bytes,
then it is sealed by the one that follows it. Pure: the caller keeps the rows. docs/design/model.md, Blocks; spec 3.1.4.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from dags_app.planning.specs import JobSpec, WorkUnitSpec


class KnownBlocks(Protocol):
    """What a dataset has of blocks before the round: how many, and which of them takes units, with the bytes planned into it."""

    @property
    def blocks(self) -> int: ...

    @property
    def open_index(self) -> int | None: ...

    @property
    def planned_bytes(self) -> int: ...

    @property
    def lumis(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BlockAssignment:
    """One unit in one block of one dataset, by its place among the dataset's, with the bytes it is expected to bring."""

    unit_index: int
    dataset: str
    block_index: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Where every unit goes. ``units`` are the given ones with ``block_index`` set."""

    units: tuple[WorkUnitSpec, ...]
    assignments: tuple[BlockAssignment, ...]


def assign_blocks(
    units: Iterable[WorkUnitSpec], *, known: Mapping[str, KnownBlocks], target_bytes: int, most_lumis: int = sys.maxsize
) -> BlockPlan:
    """Deal units out to blocks, in order.

    Args:
        units: each goes to one block of every dataset in its ``estimated_output_bytes``.
        known: by dataset; one that is missing has none yet.
        target_bytes: a block's size; never passed unless by a single unit, which then has a block of its own. ``most_lumis``
            likewise, counted for each job that holds some of one.
    """
    filling = {
        name: (each.open_index, each.planned_bytes, each.lumis) for name, each in known.items() if each.open_index is not None
    }
    count = {name: each.blocks for name, each in known.items()}
    placed: list[WorkUnitSpec] = []
    assignments: list[BlockAssignment] = []
    for unit in units:
        indexes, lumis = [], sum(map(_lumis, unit.jobs))
        for dataset, size in unit.estimated_output_bytes.items():
            index, held, had = filling.get(dataset, (None, 0, 0))
            if index is None or (held > 0 and (held + size > target_bytes or had + lumis > most_lumis)):
                index, held, had = count.get(dataset, 0), 0, 0
                count[dataset] = index + 1
            filling[dataset] = index, held + size, had + lumis
            assignments.append(BlockAssignment(unit.index, dataset, index, size))
            indexes.append(index)
        placed.append(replace(unit, block_index=min(indexes, default=0)))
    return BlockPlan(tuple(placed), tuple(assignments))


def _lumis(job: JobSpec) -> int:
    if job.generate is not None:
        return job.generate.last_lumi - job.generate.first_lumi + 1
    if job.mask is None:
        return job.file_lumis
    return sum(last - first + 1 for ranges in job.mask.values() for first, last in ranges)
