"""Asking for effects: one row per kind and key, however often it is asked for; many in a few statements."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outputs_app.models import Effect, EffectKind, ProcessingBlock
from wms2 import clock


@dataclass(frozen=True, slots=True)
class Wish:
    """An effect that is called for. ``of``: what it is done for, its key together with the kind; ``after``: keys of those that
    come first, there already or asked for with it."""

    kind: EffectKind
    of: object
    after: Sequence[str] = ()
    block: ProcessingBlock | None = None
    unit_id: int | None = None
    payload: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What makes asking twice the same as asking once."""
        return f"{self.kind}:{self.of}"


def effects_ask(*, wishes: Iterable[Wish], request_id: uuid.UUID, request_epoch: int) -> dict[str, Effect]:
    """Key -> effect, with its id, key and state; those that are not there yet are made, with what they wait for."""
    wanted = {wish.key: wish for wish in wishes}
    there = _by_key(wanted)
    new = {key: wish for key, wish in wanted.items() if key not in there}
    if not new:
        return there
    common = {"request_id": request_id, "epoch": request_epoch, "next_attempt_at": clock.now()}
    Effect.objects.bulk_create(
        [
            Effect(key=key, kind=wish.kind, block=wish.block, unit_id=wish.unit_id, payload=wish.payload, **common)
            for key, wish in new.items()
        ],
        ignore_conflicts=True,
    )
    found = _by_key({*wanted, *(key for wish in new.values() for key in wish.after)})
    through = Effect.depends_on.through
    through.objects.bulk_create(
        [
            through(from_effect_id=found[key].pk, to_effect_id=found[first].pk)
            for key, wish in new.items()
            for first in dict.fromkeys(wish.after)
        ],
        ignore_conflicts=True,
    )
    return {key: found[key] for key in wanted}


def effect_ask(wish: Wish, *, request_id: uuid.UUID, request_epoch: int) -> Effect:
    """One of them."""
    return effects_ask(wishes=[wish], request_id=request_id, request_epoch=request_epoch)[wish.key]


def _by_key(keys: Collection[str]) -> dict[str, Effect]:
    return {effect.key: effect for effect in Effect.objects.filter(key__in=keys).only("id", "key", "state")} if keys else {}
