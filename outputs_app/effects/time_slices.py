"""Long effects in portions: what is done is recorded as it goes, and after a while others have their turn.

A handler that makes many calls makes a ``TimeSlice`` and records with it after each portion what is done by then. A repeat,
after a crash or in the next turn, begins with what was recorded last (``effect.result``).
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet

from outputs_app.models import Effect, EffectState
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.runtime import clock

#: A worker does so much of one effect, and of all that are due, before it checks what else waits for it.
TIME_SLICE_SECONDS = 60.0


def lease_end() -> datetime:
    """Until when what is claimed or renewed now is kept."""
    return clock.now() + timedelta(seconds=conf().effect_lease_seconds)


def still_claimed(effect: Effect) -> QuerySet[Effect]:
    """The effect's row, as long as this claim of it has not run out and is of its request's epoch: an effect of a former one is
    never claimed again, so no other worker would end it."""
    mine = Effect.objects.filter(pk=effect.pk, claim_epoch=effect.claim_epoch, state=EffectState.CLAIMED)
    return mine.filter(claim_expires_at__gte=clock.in_sql(), epoch=F("request__epoch"))


class TimeSliceOver(Exception):
    """The effect is not done, what is done of it is recorded, and others come first."""


class TimeSlice:
    """One worker's time for an effect that it has claimed."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect
        self._ends_at = time.monotonic() + TIME_SLICE_SECONDS

    def reported(self, **done: Any) -> None:
        """Record what is done by now, beside what was recorded before.

        Raises:
            TimeSliceOver: enough for this time; call it only while something is left.
            LeaseLost: the claim is lost (``still_claimed``).
        """
        effect = self._effect
        result = effect.result | done
        if not still_claimed(effect).update(result=result, claim_expires_at=lease_end()):
            raise LeaseLost(f"{effect.key} is claimed by another process, its claim has run out, or it is not wanted any more")
        effect.result = result
        if time.monotonic() >= self._ends_at:
            raise TimeSliceOver
