"""What the life cycle itself makes of a stop that is under way."""

from __future__ import annotations

from requests_app.lease import Evaluation
from requests_app.models import HoldCode, StopIntent
from requests_app.states import hold_changes


def hold_at_least(evaluation: Evaluation, code: HoldCode, why: str) -> None:
    """A stop to go on becomes a stop to hold; a stronger one stays what it is."""
    if StopIntent(evaluation.request.stop_intent).goes_on:
        evaluation.note(stop_intent=StopIntent.HOLD, **hold_changes(code, why))
