"""The comment by which the rules of a request are found again in Rucio."""

from __future__ import annotations

from outputs_app.models import Effect
from wms2.conf import conf


def rule_comment(effect: Effect) -> str:
    """The same for all rules of a request."""
    return f"wms2 {conf().instance} {effect.request.request_name}"
