"""Whether new work may go to a site. An operator's decision outlives every sync (spec 4.9)."""

from __future__ import annotations

import structlog
from django.db.models import Q

from sites_app.bans import bans_active
from sites_app.models import Site, SiteStatus
from wms2 import clock
from wms2.locks import Fenced

log = structlog.get_logger(__name__)


def status_refused(site: Site, status: SiteStatus) -> str:
    """Why the site cannot be given this status; empty if it can."""
    return f"It is {status.label.lower()} already." if site.status == status else ""


def sites_drained(fenced: Fenced) -> list[str]:
    """Enable the sites whose drain has come to its end; their names. A row that somebody has locked waits for the next cycle."""
    over = Q(status=SiteStatus.DRAINING, drain_until__lte=clock.now())
    with fenced():
        names = list(Site.objects.select_for_update(skip_locked=True).filter(over).values_list("name", flat=True))
        if names:
            Site.objects.filter(name__in=names).update(
                status=SiteStatus.ENABLED, drain_until=None, status_reason="the drain came to its end", updated_at=clock.now()
            )
            log.info("drains ended", sites=names)
    return names


def sites_avoided(workflow_id: object) -> dict[str, str]:
    """Sites where a DAG that is submitted now must not land -> why."""
    closed = Site.objects.exclude(status=SiteStatus.ENABLED).exclude(status=SiteStatus.DRAINING, drain_until__lte=clock.now())
    found = {site.name: f"{site.get_status_display().lower()}: {site.status_reason}" for site in closed}
    for ban in bans_active().filter(Q(workflow__isnull=True) | Q(workflow_id=workflow_id)):
        scope = "banned for all" if ban.workflow_id is None else "banned for this request"
        found[ban.site_id] = f"{scope} until {ban.expires_at:%Y-%m-%d %H:%M} UTC: {ban.reason}"
    return found
