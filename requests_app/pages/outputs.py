"""Outputs: blocks by what they wait for, effects that are late, datasets. Counts are kept ones, lists are over indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Min, Q, QuerySet
from django.http import QueryDict
from django.utils import timezone

from outputs_app.api.filters import BlockFilters
from outputs_app.models import (
    OPEN_EFFECT,
    BlockStatus,
    Drift,
    DriftState,
    Effect,
    EffectKind,
    EffectState,
    IntegrityCase,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
)
from outputs_app.selectors import STUCK, blocks_done_units, blocks_shown, effects_shown
from requests_app.pages.tables import Table, table_of
from requests_app.selectors.summary import stored_counts
from wms2.runtime.storable import storable

#: Rows of each list of a page, and blocks of the first one.
MOST, MOST_BLOCKS = 100, 50
#: An effect is late when it has failed for so long, a block when its status has not changed for so long.
LATE = timedelta(hours=6)
_NOT_ENDED = (BlockStatus.OPEN, BlockStatus.COMPLETE, BlockStatus.FAILED)


class OpenEffects(NamedTuple):
    """Effects of one kind that are not done: how many in which state, and since when the first fails."""

    kind: EffectKind
    numbers: Mapping[str, int]
    failing_since: Any


class OutputsPage(NamedTuple):
    """What the address asks for. ``late``: refused, dead, or failing for long."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    counts: Sequence[tuple[BlockStatus, int]]
    owed: Sequence[OpenEffects]
    late: Sequence[Effect]
    blocks: Sequence[ProcessingBlock]
    more: bool
    statuses: Sequence[tuple[str, str]] = tuple(BlockStatus.choices)


def blocks_found(given: QueryDict) -> tuple[BlockFilters, QuerySet[ProcessingBlock]]:
    """Those that an address asks for, the longest in their state first; without a status, what is not at an end. ``tape``: those
    that wait for their tape rule."""
    asked = given.copy()
    rse, tape = storable(asked.pop("rse", [""])[-1]), asked.pop("tape", [""])[-1]
    rows = blocks_shown().order_by("updated_at", "pk")
    if tape:
        rows = rows.filter(WAITS_FOR_TAPE)
    elif not given.keys() & {"status", "dataset", "search", "request"}:
        rows = rows.filter(status__in=_NOT_ENDED)
    filters = BlockFilters(asked, queryset=rows.filter(origin_rse=rse) if rse else rows)
    return filters, filters.qs if filters.is_valid() else ProcessingBlock.objects.none()


#: Registered blocks whose tape rule was not seen to be OK yet; as the condition of ``idx_blocks_tape_waits``.
WAITS_FOR_TAPE = Q(status=BlockStatus.ARCHIVED, tape_ok_at__isnull=True) & ~Q(tape_rule_id="")


def outputs_page(given: QueryDict, filters: BlockFilters, found: QuerySet[ProcessingBlock]) -> OutputsPage:
    """Four queries; with what ``blocks_found`` has found."""
    rows = list(found[: MOST_BLOCKS + 1])
    numbers = stored_counts().blocks
    names = ("status", "rse", "tape", "dataset", "search", "request")
    return OutputsPage(
        values={name: given.get(name, "") for name in names},
        errors={name: [str(one) for one in each] for name, each in filters.form.errors.items()},
        counts=[(status, numbers[status]) for status in BlockStatus if numbers[status]],
        owed=_owed(),
        late=list(effects_late()[:MOST]),
        blocks=rows[:MOST_BLOCKS],
        more=len(rows) > MOST_BLOCKS,
    )


def effects_late() -> QuerySet[Effect]:
    """Those that wait for a person, and those that have failed for long; the first to fail first."""
    failing = Q(state__in=(EffectState.PENDING, EffectState.CLAIMED), first_failed_at__lt=timezone.now() - LATE)
    return effects_shown().filter(Q(state__in=STUCK) | failing).select_related("block").order_by("first_failed_at", "id")


def _owed() -> list[OpenEffects]:
    rows = Effect.objects.filter(state__in=OPEN_EFFECT).order_by().values_list("kind", "state")
    found: dict[str, dict[str, int]] = {}
    since: dict[str, Any] = {}
    for kind, state, number, first in rows.annotate(number=Count("*"), first=Min("first_failed_at")):
        found.setdefault(kind, dict.fromkeys(OPEN_EFFECT, 0))[state] = number
        since[kind] = min(filter(None, (since.get(kind), first)), default=None)
    return [OpenEffects(kind, found[kind], since[kind]) for kind in EffectKind if kind in found]


def outputs_lists(found: QuerySet[ProcessingBlock]) -> dict[str, Callable[[], Table]]:
    """Those of the page, each to be read by itself; ``found``: the blocks that are asked for."""

    def owed() -> Table:
        rows = ([each.kind.value, *each.numbers.values(), each.failing_since] for each in _owed())
        return Table(("kind", *map(str, OPEN_EFFECT), "failing_since"), rows)

    late = ("id", "request__request_name", *_OF_EFFECTS[:4], "first_failed_at", "last_error", "block__dbs_block_name")
    return {"blocks": table_of(found, *_OF_BLOCKS), "late": table_of(effects_late(), *late), "owed": owed}


_OF_BLOCKS = ("dbs_block_name", "status", "origin_rse", "tape_rule_id", "rucio_last_error", "created_at", "updated_at")
_OF_EFFECTS = ("kind", "state", "attempts", "next_attempt_at", "done_at", "last_error")
_OF_DIFFERENCES = ("kind", "state", "name", "expected", "found", "since")


class BlockSeen(NamedTuple):
    """One block: which step it is at, what it has and what it owes."""

    block: ProcessingBlock
    step: str
    files: Sequence[OutputFile]
    more: bool
    effects: Sequence[Effect]
    cases: Sequence[IntegrityCase]
    drift: Sequence[Drift]
    units_done: int

    @property
    def source_rule(self) -> str:
        """What protects its files at its RSE, in words."""
        return self.block.source_rule_id or ("one for each file" if any(file.rule_id for file in self.files) else "none")


def block_seen(block: ProcessingBlock) -> BlockSeen:
    """Five queries."""
    of_files, of_effects, cases, drift = _of_block(block)
    effects, files = list(of_effects[:MOST]), list(of_files.defer("lumis", "parents")[: MOST + 1])
    return BlockSeen(
        block, step_of(block, effects), files[:MOST], len(files) > MOST, effects, list(cases[:MOST]),
        list(drift[:MOST]), blocks_done_units([block.pk]).get(block.pk, 0),
    )  # fmt: skip


def block_lists(block: ProcessingBlock) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself."""
    files, effects, cases, drift = _of_block(block)
    return {
        "files": table_of(files, "lfn", "events", "size_bytes", "rse", "validity"),
        "effects": table_of(effects, *_OF_EFFECTS),
        "cases": table_of(cases, "prognosis", "state", "name", "created_at"),
        "differences": table_of(drift, *_OF_DIFFERENCES),
    }


def _of_block(block: ProcessingBlock) -> tuple[QuerySet[OutputFile], QuerySet[Effect], QuerySet[IntegrityCase], QuerySet[Drift]]:
    drift = Drift.objects.filter(block=block).exclude(state__in=(DriftState.GONE, DriftState.REPAIRED))
    return (
        OutputFile.objects.filter(block=block).order_by("lfn"), effects_shown().filter(block=block).order_by("id"),
        IntegrityCase.objects.filter(block=block).order_by("-id"), drift.order_by("id"),
    )  # fmt: skip


def step_of(block: ProcessingBlock, effects: Sequence[Effect]) -> str:
    """In words: where a block stands on its way, and what it waits for."""
    owed = next((each for each in effects if each.state in OPEN_EFFECT), None)
    if owed is not None:
        why = f", {owed.last_error[:200]}" if owed.last_error else ""
        return f"{owed.get_kind_display()}: {owed.get_state_display().lower()}{why}"
    if block.status == BlockStatus.OPEN:
        return "sealed, waits for its registration" if block.sealed_at else "takes work units until it is full"
    if block.status == BlockStatus.ARCHIVED and block.tape_rule_id and block.tape_ok_at is None:
        return f"its tape rule {block.tape_rule_id} is not seen to be OK yet"
    return block.no_tape or block.get_status_display().lower()


class DatasetSeen(NamedTuple):
    """One output dataset, which several requests may have: its rows, and blocks of all by status."""

    name: str
    rows: Sequence[OutputDataset]
    counts: Mapping[str, int]
    blocks: Sequence[ProcessingBlock]
    more: bool
    drift: Sequence[Drift]


def dataset_seen(name: str) -> DatasetSeen | None:
    """Four queries; none of that name: None."""
    of_name, blocks, drift = _of_dataset(name)
    rows = list(of_name.select_related("workflow", "comparison")[:MOST])
    if not rows:
        return None
    counts = dict(blocks.order_by().values_list("status").annotate(number=Count("*")))
    shown = list(blocks.select_related("workflow")[: MOST + 1])
    return DatasetSeen(name, rows, counts, shown[:MOST], len(shown) > MOST, list(drift[:MOST]))


def dataset_lists(name: str) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself."""
    rows, blocks, drift = _of_dataset(name)
    return {
        "blocks": table_of(blocks, *_OF_BLOCKS),
        "requests": table_of(rows, "workflow__request_id", "state", "step", "module", "tape_rse", "comparison__ended_at"),
        "differences": table_of(drift, *_OF_DIFFERENCES),
    }


def _of_dataset(name: str) -> tuple[QuerySet[OutputDataset], QuerySet[ProcessingBlock], QuerySet[Drift]]:
    return (
        OutputDataset.objects.filter(name=name).order_by("id"),
        ProcessingBlock.objects.filter(dataset__name=name).order_by("-block_index"),
        Drift.objects.filter(dataset__name=name, state=DriftState.UNSETTLED).order_by("id"),
    )
