"""Writing audit entries: every verb, refusal, takeover and automatic decision."""

from __future__ import annotations

from typing import Any

from requests_app.models import AuditEntry


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
