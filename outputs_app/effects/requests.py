"""Requests for effects: one row per kind and key, however often it is asked for; many in a few statements.

Units of a block that complete one after the other are gathered: an effect that was never claimed takes further units in (ADR
0015).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from outputs_app.models import Effect, EffectKind, EffectState
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows

#: One effect takes in so many units; the calls that it makes, and what a refusal keeps back, stay of that size.
MOST_UNITS = 100
#: The registration and its protection, which waits for it and so has not been claimed either, but may have been discarded.
_WIDEN = """
WITH more AS (SELECT * FROM unnest(%(blocks)s::uuid[], %(units)s::jsonb[]) AS more (block_id, units)),
first AS (
  SELECT DISTINCT ON (block_id) id, block_id, unit_id FROM effects
  WHERE block_id = ANY(%(blocks)s) AND kind = %(files)s AND state = %(pending)s AND claim_epoch = 0 AND epoch = %(epoch)s
    AND jsonb_array_length(payload->'units') < %(most)s
    AND NOT EXISTS (
      SELECT FROM effects protect
      WHERE protect.block_id = effects.block_id AND protect.unit_id = effects.unit_id AND protect.kind = %(protect)s
        AND (protect.state <> %(pending)s OR protect.claim_epoch > 0))
  ORDER BY block_id, id)
UPDATE effects effect SET payload = jsonb_set(payload, '{units}', (payload->'units') || more.units)
FROM first JOIN more USING (block_id)
WHERE effect.block_id = first.block_id AND effect.unit_id = first.unit_id AND effect.kind IN (%(files)s, %(protect)s)
RETURNING effect.block_id
"""


@dataclass(frozen=True, slots=True)
class EffectRequest:
    """An effect that is called for. ``of``: what it is done for, its key together with the kind; ``after``: keys of those that
    come first, there already or asked for with it; ``wait_seconds``: until it is due."""

    kind: EffectKind
    of: object
    after: Sequence[str] = ()
    block_id: uuid.UUID | None = None
    unit_id: int | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    wait_seconds: float = 0.0

    @property
    def key(self) -> str:
        """What makes asking twice the same as asking once."""
        return f"{self.kind}:{self.of}"


def effects_enqueue(*, effect_requests: Iterable[EffectRequest], request_id: uuid.UUID, request_epoch: int) -> dict[str, Effect]:
    """Key -> effect, with its id, key and state; those that are not there yet are made, with what they wait for."""
    wanted = {effect_request.key: effect_request for effect_request in effect_requests}
    there = _by_key(wanted)
    new = {key: effect_request for key, effect_request in wanted.items() if key not in there}
    if not new:
        return there
    now = clock.now()
    rows = [
        Effect(
            key=key, kind=each.kind, block_id=each.block_id, unit_id=each.unit_id, payload=each.payload, request_id=request_id,
            epoch=request_epoch, next_attempt_at=now + timedelta(seconds=each.wait_seconds),
        )
        for key, each in new.items()
    ]  # fmt: skip
    Effect.objects.bulk_create(rows, ignore_conflicts=True)
    found = _by_key({*wanted, *(key for effect_request in new.values() for key in effect_request.after)})
    through = Effect.depends_on.through
    through.objects.bulk_create(
        [
            through(from_effect_id=found[key].pk, to_effect_id=found[first].pk)
            for key, effect_request in new.items()
            for first in dict.fromkeys(effect_request.after)
        ],
        ignore_conflicts=True,
    )
    return {key: found[key] for key in wanted}


def effects_widen(*, units: Mapping[uuid.UUID, Sequence[int]], request_epoch: int) -> frozenset[uuid.UUID]:
    """Block -> units that are done: have them registered and protected with others of their blocks. Returns for which that is so.

    Call it with the blocks' rows locked: a claim of an effect locks its block first, so an effect that is unclaimed here stays
    so until the caller commits, and is claimed with all its units. An effect that was ever claimed may have been called, and
    stays as it was.
    """
    values: dict[str, Any] = {
        "blocks": list(units), "units": [json.dumps(sorted(ids)) for ids in units.values()], "epoch": request_epoch,
        "most": MOST_UNITS, "pending": EffectState.PENDING, "files": EffectKind.RUCIO_FILES,
        "protect": EffectKind.RUCIO_PROTECT,
    }  # fmt: skip
    return frozenset(block_id for (block_id,) in sql_rows(_WIDEN, values))


def _by_key(keys: Collection[str]) -> dict[str, Effect]:
    return {effect.key: effect for effect in Effect.objects.filter(key__in=keys).only("id", "key", "state")} if keys else {}
