"""Versions of requests, sites and limits, for ``ETag`` and ``If-Match``: what a person's decision looks at, and verbs change.

Counts, slots, leases and other things that move by themselves are not part of a version: it would be gone before it could be
sent back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
        row.production_steps,
        row.cleanup_policy,
        row.superseded_by_request,
    )


def site_etag(site: Any) -> str:
    """Its status, notes and bans in force; of a row of ``sites_shown``."""
    bans = [(ban.pk, ban.expires_at, ban.reason) for ban in site.active_bans]
    return etag_of(site.pk, site.status, site.status_reason, site.status_actor, site.drain_until, site.config_data, bans)


def limits_etag(limits: Iterable[LimitInForce]) -> str:
    """All of them together."""
    return etag_of(*((limit.name, limit.value, limit.default, limit.changed_at) for limit in limits))
