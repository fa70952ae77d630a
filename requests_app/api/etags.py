"""Versions of requests and limits, for ``ETag`` and ``If-Match``: what a person's decision looks at, and verbs change.

Counts, slots, leases and other things that move by themselves are not part of a version: it would be gone before it could be
sent back.
"""

from __future__ import annotations

from collections.abc import Iterable

from requests_app.models import Request
from requests_app.selectors.admission import LimitInForce
from wms2.api.preconditions import etag_of


def request_etag(row: Request) -> str:
    """Where it stands, what is asked of it, and which version replaces it."""
    return etag_of(
        row.pk,
        row.epoch,
        row.status,
        row.status_since,
        row.stop_intent,
        row.hold_code,
        row.hold_reason,
        row.priority,
        row.urgent,
        row.notes,
        row.production_steps,
        row.cleanup_policy,
        row.superseded_by_request,
    )


def limits_etag(limits: Iterable[LimitInForce]) -> str:
    """All of them together."""
    return etag_of(*((limit.name, limit.value, limit.default, limit.changed_at) for limit in limits))
