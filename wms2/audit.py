"""Writing audit entries: every verb, refusal, takeover and automatic decision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from wms2.errors import InvalidTransition, StaleState
from wms2.models import AuditEntry


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
    """Append one entry."""
    AuditEntry.objects.create(
        actor=actor,
        action=action,
        target_type=target_type,
        target=str(target),
        reason=reason,
        outcome="refused" if refused else "done",
        evidence=evidence,
    )


def audit_braked_sign_in(sender: Any, *, way: str, name: str, address: str, seconds: int, **_: Any) -> None:
    """Receiver of ``wms2.brake.sign_in_braked``; the actor is not known, for nothing was judged."""
    audit(
        actor="unknown",
        action="sign_in_braked",
        target_type="user" if name else "address",
        target=(name or address)[:300],
        reason=f"too many failures; nothing is judged for {seconds} s",
        refused=True,
        way=way,
        address=address,
    )


@contextmanager
def audited(*, actor: str, action: str, target: object, target_type: str, reason: str, **evidence: Any) -> Iterator[None]:
    """Do what is inside in one transaction with its entry; refusals get theirs too, and go on."""
    try:
        with transaction.atomic():
            yield
            audit(actor=actor, action=action, target=target, target_type=target_type, reason=reason, **evidence)
    except (InvalidTransition, StaleState) as error:
        audit(
            actor=actor, action=action, target=target, target_type=target_type, reason=reason, refused=True,
            why=str(error), **evidence,
        )  # fmt: skip
        raise
