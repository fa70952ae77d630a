"""Writes of sites_app: CRIC's sync and the configured schedd (spec 4.9; docs/design/services.md, CRIC)."""

from __future__ import annotations

from pathlib import Path

import structlog
from django.db import transaction
from django.utils import timezone

from sites_app.models import Pool, Schedd, ScheddState, Site, SiteRse, SiteStatus
from sites_app.schedds import as_configured
from sites_app.services import FED, SSB, site_change_status
from sites_app.submit_roots import root_mark
from wms2.adapters import factory
from wms2.conf import conf
from wms2.errors import ServiceRejected
from wms2.passes import row_by_itself

log = structlog.get_logger(__name__)
#: A ``test`` site gets no production, and what runs there goes on.
_STATUSES = {
    "enabled": SiteStatus.ENABLED,
    "drain": SiteStatus.DRAINING,
    "test": SiteStatus.DRAINING,
    "disabled": SiteStatus.DISABLED,
}


def sites_sync() -> tuple[int, int]:
    """Take sites and their RSEs from CRIC; returns (sites, pairs). A person's status is never undone, nothing is deleted empty.

    Raises:
        ServiceUnavailable: CRIC did not answer.
        ServiceRejected: sites or RSEs are none, or less than half of what is known: not believed.
    """
    cric = factory.cric()
    names = {row.alias for row in cric.site_names() if row.type == "psn"}
    pairs = {(pair.psn, pair.rse) for pair in cric.processing_pairs()}
    _refuse_shrunk("sites", len(names), Site.objects.count())
    _refuse_shrunk("pairs of site and RSE", len(pairs), SiteRse.objects.count())
    now = timezone.now()
    with transaction.atomic():
        for name in sorted(names | {psn for psn, _ in pairs}):
            Site.objects.update_or_create(name=name, defaults={"cric_seen_at": now})
        for psn, rse in sorted(pairs):
            SiteRse.objects.update_or_create(site_id=psn, rse=rse, defaults={"seen_at": now})
        SiteRse.objects.filter(seen_at__lt=now).delete()
    log.info("sites synced from CRIC", sites=len(names), pairs=len(pairs))
    return len(names), len(pairs)


def site_statuses_sync() -> int:
    """Take the production status of sites from the Site Status Board; returns how many were changed. What a person has decided
    of a site stands, and so do sites that the board does not name.

    Raises:
        ServiceUnavailable: it did not answer.
        ServiceRejected: it is empty, or would stop half of the sites that are enabled: not believed.
    """
    told, changes = factory.ssb().production_statuses(), list[tuple[Site, SiteStatus]]()
    for site in Site.objects.filter(name__in=told, status_actor__in=FED):
        status = _STATUSES.get(told[site.name].lower())
        if status is None:
            log.warning("production status not known", site=site.name, status=told[site.name])
        elif status != site.status:
            changes.append((site, status))
    enabled = Site.objects.filter(status=SiteStatus.ENABLED).count()
    stopped = [site.name for site, status in changes if site.status == SiteStatus.ENABLED]
    followed = Site.objects.filter(
        status_actor=SSB
    ).exists()  # before the first answer all are enabled, as CRIC's sync makes them
    if stopped and followed and len(stopped) * 2 >= enabled:
        what = f"{len(stopped)} of {enabled} enabled sites would be stopped, e.g. {stopped[0]}; not believed"
        raise ServiceRejected("ssb", "site_statuses_sync", what)
    for site, status in changes:
        with row_by_itself("site_statuses", site.name, lambda problem: None):
            site_change_status(site=site, status=status, actor=SSB, reason=f"production status {told[site.name]} in SSB")
    return len(changes)


def _refuse_shrunk(what: str, number: int, known: int) -> None:
    """An answer that was cut off must not take sites their storage: then nothing could be planned there."""
    if not number or number * 2 < known:
        raise ServiceRejected("cric", "sites_sync", f"{number} {what} where {known} are known; not taken over")


def schedd_ensure_configured() -> Schedd:
    """The schedd that the configuration names, and its pool; enabled when first seen, what operators changed is kept.

    Raises:
        RootRefused: its submit root is another installation's.
    """
    settings = conf()
    at = settings.collector
    known = Pool.objects.filter(collector=at, schedds__name=settings.schedd_name).first()
    pool = known or Pool.objects.get_or_create(name=at, defaults={"collector": at, "file_system": at})[0]
    schedd, _ = Schedd.objects.get_or_create(
        pool=pool,
        name=settings.schedd_name,
        defaults={
            "state": ScheddState.ENABLED,
            "onboarded_at": timezone.now(),  # whoever installs it vouches for it
            **as_configured(),
        },
    )
    _mark_configured(schedd, settings.submit_root)
    return schedd


def _mark_configured(schedd: Schedd, root: Path) -> None:
    """Who installs WMS2 vouches for this root too. A file system that is away must not look as if it were there."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not any(root.iterdir()) and schedd.dags.exists():
            log.error("submit root not marked as WMS2's own: it is empty, is its file system mounted?", path=str(root))
            return
        root_mark(root)
    except OSError as error:
        log.error("submit root not marked as WMS2's own; have the schedd checked", path=str(root), error=str(error))
