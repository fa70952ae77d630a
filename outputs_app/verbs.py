"""Verbs on effects."""

from __future__ import annotations

from outputs_app.models import Effect, EffectState
from outputs_app.selectors import effects_shown
from outputs_app.services import effect_retry_now, effect_retry_refused
from wms2.verbs import Noun, Verb, declare, told_of_each
from wms2.words import counted


def _retry(effect: Effect) -> list[str]:
    last = [f"Last error: {effect.last_error}"] if effect.last_error else []
    if effect.state == EffectState.CLAIMED:
        return ["It runs just now and goes on.", *last]
    tried = f"after {counted(effect.attempts, 'attempt')}" if effect.attempts else "for the first time"
    return [f"{effect.get_kind_display()}: tried again at once, {tried}; its time for retries starts anew.", *last]


declare(
    Noun(
        Effect, "effect", "effect", lambda key: effects_shown().filter(pk=key),
        lambda effect: (effect.state, effect.get_state_display()), "effects/<int:pk>",
    ),
    Verb(
        "retry", "Retry now",
        "Try a registration again now. Revives a refused or dead effect, and makes a waiting one due.",
        effect_retry_now, told_of_each(_retry), refused=effect_retry_refused, path="retry",
    ),
)  # fmt: skip
