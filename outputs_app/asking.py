"""Asking for effects: one row per kind and key, however often it is asked for."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

from outputs_app.models import Effect, EffectKind, ProcessingBlock
from wms2 import clock


def effect_ask(
    kind: EffectKind, *, key: object, request_id: uuid.UUID, request_epoch: int, after: Iterable[Effect] = (), **fields: Any
) -> Effect:
    """The effect of this kind and key, made with what it waits for unless it is there already."""
    effect, created = Effect.objects.get_or_create(
        key=f"{kind}:{key}",
        defaults={"kind": kind, "request_id": request_id, "epoch": request_epoch, "next_attempt_at": clock.now(), **fields},
    )
    if created:
        effect.depends_on.set(after)
    return effect


def block_asker(*, request_id: uuid.UUID, request_epoch: int, block: ProcessingBlock) -> partial[Effect]:
    """``effect_ask`` for one block, whose id is the key unless another is given."""
    return partial(effect_ask, key=block.pk, request_id=request_id, request_epoch=request_epoch, block=block)
