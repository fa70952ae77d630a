"""Several plain verbs asked for at once (PATCH): all of them are done, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from requests_app.models import Request
from requests_app.services.production import request_set_steps
from requests_app.services.verbs import request_set_priority, request_submit
from wms2.audit import audit
from wms2.errors import InvalidTransition


def request_change(
    *,
    request: Request,
    actor: str,
    reason: str,
    submit: bool = False,
    priority: int | None = None,
    steps: Sequence[Mapping[str, Any]] | None = None,
    confirm: bool = False,
) -> None:
    """Submit it, change its priority, replace its production steps, as asked; what is so already is left alone.

    Raises:
        InvalidTransition: one of them is refused; nothing was changed.
        StaleState: it changed meanwhile; nothing was changed.
    """
    told: dict[str, Any] = {"request": request, "actor": actor, "reason": reason}
    verbs: list[Callable[[], None]] = []
    if submit:
        verbs.append(partial(request_submit, **told))
    if priority is not None and priority != request.priority:
        verbs.append(partial(request_set_priority, priority=priority, **told))
    if steps is not None and list(steps) != request.production_steps:
        verbs.append(partial(request_set_steps, steps=steps, confirm=confirm, **told))
    if len(verbs) == 1:
        verbs[0]()
    elif verbs:
        _together(verbs, request.request_name, actor, reason)


def _together(verbs: Sequence[Callable[[], None]], name: str, actor: str, reason: str) -> None:
    try:
        with transaction.atomic():
            for verb in verbs:
                verb()
    except InvalidTransition as error:  # the refused verb's own entry went with the transaction
        audit(actor=actor, action="request_change", target=name, reason=reason, refused=True, why=str(error))
        raise
