"""An operator's word on effects: try a refused or dead registration again, with a reason, audited."""

from __future__ import annotations

from django.db import transaction

from outputs_app.models import Effect, EffectState
from outputs_app.services import effect_retry
from requests_app.models import RequestStatus
from wms2.audit import audit
from wms2.errors import InvalidTransition
from wms2.nudge import EVALUATE_REQUEST, RUN_EFFECTS, nudge


def effect_retry_now(*, effect: Effect, actor: str, reason: str) -> None:
    """Due at once, with its retry time counted anew. Asked twice it is asked once; one that runs just now goes on.

    Raises:
        InvalidTransition: it is done, or its request's outputs have been taken back since.
    """
    old = effect.state
    why = _refused(effect)
    if why:
        audit(actor=actor, action="effect_retry", target=effect.key, target_type="effect", reason=reason, refused=True, why=why)
        raise InvalidTransition(why)
    with transaction.atomic():
        effect_retry(effect=effect, reopen=effect.request.status != RequestStatus.FAILED)
        audit(actor=actor, action="effect_retry", target=effect.key, target_type="effect", reason=reason, old=old)
        nudge(RUN_EFFECTS)
        nudge(EVALUATE_REQUEST, str(effect.request_id))


def _refused(effect: Effect) -> str:
    told = f"effect {effect.pk} ({effect.get_kind_display()})"
    if effect.state == EffectState.DONE:
        return f"{told} is done; there is nothing to retry"
    if effect.epoch != effect.request.epoch:
        return f"{told} is not wanted any more: the outputs of {effect.request.request_name} are taken back"
    return ""
