"""Pausing a request whose step failed for an outside reason: it is passed over until ``next_attempt_at``, never waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import structlog

from requests_app.lease import Evaluation
from wms2 import clock
from wms2.errors import Wms2Error
from wms2.in_force import in_force

log = structlog.get_logger(__name__)


def pause_fields(failed_attempts: int, error: Wms2Error) -> dict[str, Any]:
    """Doubling pauses up to the cap."""
    settings = in_force()
    seconds = min(settings.retry_after_failure_seconds * 2 ** min(failed_attempts, 20), settings.retry_after_failure_max_seconds)
    return {
        "next_attempt_at": clock.now() + timedelta(seconds=seconds),
        "failed_attempts": failed_attempts + 1,
        "last_error": str(error)[:4000],
    }


def pause(evaluation: Evaluation, error: Wms2Error) -> None:
    """Stay in the status, try again later, say why."""
    fields = pause_fields(evaluation.request.failed_attempts, error)
    evaluation.note(**fields, waiting_for=f"next attempt after: {error}"[:4000])
    log.warning(
        "paused", request_name=evaluation.request.request_name, until=fields["next_attempt_at"].isoformat(), error=str(error)
    )
