"""Asking for effects: one row per kind and key, however often it is asked for."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
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


class Asker:
    """Creates the effects of one block, once each."""

    def __init__(self, request_id: uuid.UUID, request_epoch: int, block: ProcessingBlock) -> None:
        self.request_id, self.request_epoch, self.block = request_id, request_epoch, block

    def __call__(
        self, kind: EffectKind, *, key: str = "", after: Iterable[Effect] = (), unit_id: int | None = None, **payload: Any
    ) -> Effect:
        return effect_ask(
            kind, key=key or self.block.pk, request_id=self.request_id, request_epoch=self.request_epoch, after=after,
            block=self.block, unit_id=unit_id, payload=payload,
        )  # fmt: skip
