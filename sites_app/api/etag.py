"""The version of a site, for ``ETag`` and ``If-Match``: what operators decide on and verbs change."""

from __future__ import annotations

from typing import Any

from wms2.api.preconditions import etag_of


def site_etag(site: Any) -> str:
    """Its status, notes and bans in force; of a row of ``sites_shown``. Slots move by themselves and are no part of it."""
    bans = [(ban.pk, ban.expires_at, ban.reason) for ban in site.active_bans]
    return etag_of(site.pk, site.status, site.status_reason, site.status_actor, site.drain_until, site.config_data, bans)
