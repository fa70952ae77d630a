"""The block's status table and its single writer (docs/design/model.md, Blocks)."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from outputs_app.models import BlockStatus, ProcessingBlock
from wms2.runtime import clock

S = BlockStatus
#: A retried effect makes a FAILED block OPEN or ARCHIVED again; without its tape rule one is COMPLETE, until it is INVALIDATED.
TRANSITIONS: dict[BlockStatus, frozenset[BlockStatus]] = {
    S.OPEN: frozenset({S.COMPLETE, S.ARCHIVED, S.FAILED, S.GIVEN_UP, S.INVALIDATED}),
    S.COMPLETE: frozenset({S.ARCHIVED, S.FAILED, S.GIVEN_UP, S.INVALIDATED}),
    S.ARCHIVED: frozenset({S.COMPLETE, S.FAILED, S.INVALIDATED}),
    S.FAILED: frozenset({S.OPEN, S.ARCHIVED, S.GIVEN_UP, S.INVALIDATED}),
    S.GIVEN_UP: frozenset({S.INVALIDATED}),
    S.INVALIDATED: frozenset(),
}


def blocks_become(rows: QuerySet[ProcessingBlock], to: BlockStatus, **changes: Any) -> int:
    """Move those of the blocks that an edge leads from, or that are there already; returns how many."""
    sources = [status for status, targets in TRANSITIONS.items() if status is to or to in targets]
    return rows.filter(status__in=sources).update(status=to, updated_at=clock.now(), **changes)
