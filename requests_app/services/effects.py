"""An operator's word on effects: try a refused or dead registration again, with a reason, audited."""

from __future__ import annotations

from django.db import transaction

from outputs_app.models import Effect, EffectState
from outputs_app.services import effect_retry
from requests_app.audit import audit
from wms2.errors import InvalidTransition
from wms2.nudge import EVALUATE_REQUEST, RUN_EFFECTS, nudge


def effect_retry_now(*, effect: Effect, actor: str, reason: str) -> None:
    """Due at once, with its retry time counted anew. Asked twice it is asked once; one that runs just now goes on.

    Raises:
        InvalidTransition: it is done.
    """
    old = effect.state
    if old == EffectState.DONE:
        why = f"effect {effect.pk} ({effect.get_kind_display()}) is done; there is nothing to retry"
        audit(actor=actor, action="effect_retry", target=effect.key, target_type="effect", reason=reason, refused=True, why=why)
        raise InvalidTransition(why)
    with transaction.atomic():
        effect_retry(effect=effect)
        audit(actor=actor, action="effect_retry", target=effect.key, target_type="effect", reason=reason, old=old)
        nudge(RUN_EFFECTS)
        nudge(EVALUATE_REQUEST, str(effect.request_id))
