"""Writing audit entries: every operation, refusal, takeover and automatic decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.db import transaction

from wms2.errors import InvalidTransition, StaleState
from wms2.models import AuditEntry
from wms2.runtime.storable import storable

#: Set on a Django request whose refusal has its entry.
REFUSAL_AUDITED = "_wms2_refusal_audited"


def refusal_set_audited(request: Any) -> None:
    """The answer 401, 403 or 429 to this Django request needs no entry beside the one that was made."""
    setattr(request, REFUSAL_AUDITED, True)


def audit(
    *,
    actor: str,
    action: str,
    target: object = "",
    target_type: str = "request",
    reason: str = "",
    refused: bool = False,
    **evidence: Any,
) -> None:
    """Append one entry, of whatever text: what is said about a refused call may repeat what no column takes."""
    AuditEntry.objects.create(
        actor=storable(actor)[:100],  # users made in the admin may have longer names
        action=action,
        target_type=target_type,
        target=storable(str(target)),
        reason=storable(reason),
        outcome="refused" if refused else "done",
        evidence=storable(evidence),
    )


@contextmanager
def audited(*, actor: str, action: str, target: object, target_type: str, reason: str, **evidence: Any) -> Iterator[None]:
    """Do what is inside in one transaction with its entry; refusals get theirs too, and go on."""
    entry = partial(audit, actor=actor, action=action, target=target, target_type=target_type, reason=reason, **evidence)
    with refusals_audited(entry, InvalidTransition, StaleState), transaction.atomic():
        yield
        entry()


@contextmanager
def refusals_audited(entry: Callable[..., None], *kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds get their entry as a refusal, and go on. ``entry``: ``audit`` of who does what to which."""
    try:
        yield
    except kinds as error:
        entry(refused=True, why=str(error))
        raise
