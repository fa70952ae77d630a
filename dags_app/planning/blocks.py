"""Which processing block each work unit goes to, per output dataset.

Blocks belong to the workflow and stay open over rounds; a block takes units until the next one would pass the target bytes,
then it is sealed. Pure: the caller keeps the rows. docs/design/model.md, Blocks; spec 3.1.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dags_app.planning.specs import WorkUnitSpec


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A block that still takes units: ``key`` is the caller's, ``ordinal`` its place among the dataset's blocks, from 0."""

    key: str
    dataset: str
    ordinal: int
    bytes: int


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block to create; its ``key`` is only good inside one ``BlockPlan``."""

    key: str
    dataset: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class BlockAssignment:
    """One unit in one block of one dataset, with the bytes it is expected to bring."""

    unit_index: int
    dataset: str
    block_key: str
    bytes: int


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Where every unit goes. ``units`` are the given ones with ``block_index`` set."""

    units: tuple[WorkUnitSpec, ...]
    assignments: tuple[BlockAssignment, ...]
    new_blocks: tuple[NewBlock, ...]
    sealed: tuple[str, ...]  # keys of blocks, old or new, that take no further unit


class _Filling:
    """The blocks of one dataset while units are dealt out."""

    def __init__(self, dataset: str, open_blocks: Sequence[OpenBlock], next_ordinal: int, target_bytes: int) -> None:
        self._dataset = dataset
        self._target_bytes = target_bytes
        self._queue = sorted(open_blocks, key=lambda block: block.ordinal)
        self._next_ordinal = next_ordinal
        self._current: OpenBlock | None = self._queue.pop(0) if self._queue else None
        self.new_blocks: list[NewBlock] = []
        self.sealed: list[str] = []

    def take(self, size: int) -> OpenBlock:
        """The block that takes a unit of ``size`` bytes. A unit larger than the target has a block of its own."""
        current = self._current
        while current is not None and current.bytes > 0 and current.bytes + size > self._target_bytes:
            self.sealed.append(current.key)
            current = self._queue.pop(0) if self._queue else None
        if current is None:
            current = OpenBlock(f"new:{self._dataset}:{self._next_ordinal}", self._dataset, self._next_ordinal, 0)
            self._next_ordinal += 1
            self.new_blocks.append(NewBlock(current.key, current.dataset, current.ordinal))
        self._current = replace(current, bytes=current.bytes + size)
        return self._current


def assign_blocks(
    units: Iterable[WorkUnitSpec], *, open_blocks: Sequence[OpenBlock], block_counts: dict[str, int], target_bytes: int
) -> BlockPlan:
    """Deal units out to blocks, in order.

    Args:
        units: each goes to one block of every dataset in its ``estimated_output_bytes``.
        open_blocks: blocks that take units, with what they already hold.
        block_counts: dataset -> blocks it has had so far, sealed ones included (0 when missing): ordinals go on from there.
        target_bytes: a block's size; never passed unless by a single unit.
    """
    filling: dict[str, _Filling] = {}
    placed: list[WorkUnitSpec] = []
    assignments: list[BlockAssignment] = []
    for unit in units:
        ordinals = []
        for dataset, size in unit.estimated_output_bytes.items():
            if dataset not in filling:
                mine = [block for block in open_blocks if block.dataset == dataset]
                filling[dataset] = _Filling(dataset, mine, block_counts.get(dataset, 0), target_bytes)
            block = filling[dataset].take(size)
            assignments.append(BlockAssignment(unit.index, dataset, block.key, size))
            ordinals.append(block.ordinal)
        placed.append(replace(unit, block_index=min(ordinals, default=0)))
    return BlockPlan(
        tuple(placed),
        tuple(assignments),
        tuple(block for each in filling.values() for block in each.new_blocks),
        tuple(key for each in filling.values() for key in each.sealed),
    )
