"""Writes of sites_app: CRIC's sync and the configured schedd (spec 4.9; docs/design/services.md, CRIC)."""

from __future__ import annotations

import structlog
from django.db import transaction
from django.utils import timezone

from sites_app.models import Pool, Schedd, ScheddState, Site, SiteRse, SiteStatus
from sites_app.schedds import as_configured
from sites_app.services import FED, SSB, site_change_status
from sites_app.submit_roots import root_mark
from wms2.adapters import factory
from wms2.adapters.cric import PSN
from wms2.conf import conf
from wms2.errors import RowsUnread, ServiceRejected
from wms2.runtime.passes import row_by_itself

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

    A row that cannot be read takes no storage away: of the site that it names, or of all if it names none that is known.

    Raises:
        ServiceUnavailable: CRIC did not answer.
        RowsUnread: all others are taken over.
        ServiceRejected: no sites or RSEs, or less than half of what is known: not believed.
    """
    cric = factory.cric()
    sites, storage = cric.site_names(), cric.processing_pairs()
    names = {row.alias for row in sites.read if row.type == PSN}
    pairs = {(psn, rse) for rse, psn in storage.read}
    _refuse_shrunk("sites", len(names), Site.objects.count())
    _refuse_shrunk("pairs of site and RSE", len(pairs), SiteRse.objects.count())
    now = timezone.now()
    with transaction.atomic():
        for name in sorted(names | {psn for psn, _ in pairs}):
            Site.objects.update_or_create(name=name, defaults={"cric_seen_at": now})
        for psn, rse in sorted(pairs):
            SiteRse.objects.update_or_create(site_id=psn, rse=rse, defaults={"seen_at": now})
        old, doubtful = SiteRse.objects.filter(seen_at__lt=now), set(map(str, storage.unread))
        if doubtful <= set(Site.objects.values_list("name", flat=True)):  # else an unread row may be of any site
            old.exclude(site__in=doubtful).delete()
    log.info("sites synced from CRIC", sites=len(names), pairs=len(pairs))
    _raise_unread("cric", "sites_sync", sites.problem, storage.problem)
    return len(names), len(pairs)


def site_statuses_sync() -> int:
    """Take the production status of sites from the Site Status Board; returns how many were changed. What a person has decided
    of a site stands, and so do sites that the board does not name.

    Raises:
        ServiceUnavailable: it did not answer.
        RowsUnread: all others are taken over.
        ServiceRejected: it is empty, or would stop half of the sites that are enabled (the first one: all): not believed.
    """
    rows, changes, broken = factory.ssb().production_statuses(), list[tuple[Site, SiteStatus]](), list[str]()
    read = {row.site: row.status for row in rows.read}
    for site in Site.objects.filter(name__in=read, status_actor__in=FED):
        status = _STATUSES.get(read[site.name].lower())
        if status is None:
            log.warning("production status not known", site=site.name, status=read[site.name])
        elif status != site.status:
            changes.append((site, status))
    enabled = Site.objects.filter(status=SiteStatus.ENABLED).count()
    stopped = [site.name for site, status in changes if site.status == SiteStatus.ENABLED]
    # before the first answer all are enabled, as CRIC's sync makes them: it may stop more, but not all
    most = enabled / 2 if Site.objects.filter(status_actor=SSB).exists() else enabled
    if stopped and len(stopped) >= most:
        what = f"{len(stopped)} of {enabled} enabled sites would be stopped, e.g. {stopped[0]}; not believed"
        raise ServiceRejected("ssb", "site_statuses_sync", what)
    for site, status in changes:
        with row_by_itself("site_statuses", site.name, broken.append):
            site_change_status(site=site, status=status, actor=SSB, reason=f"production status {read[site.name]} in SSB")
    _raise_unread("ssb", "site_statuses_sync", rows.problem, *broken)
    return len(changes)


def _raise_unread(service: str, operation: str, *problems: str) -> None:
    """Fail the task, for its row that operators see; what could be read is taken over."""
    if any(problems):
        raise RowsUnread(service, operation, "; ".join(filter(None, problems)))


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
    trusted = {"state": ScheddState.ENABLED, "onboarded_at": timezone.now(), **as_configured()}  # by whom installs WMS2
    schedd, _ = Schedd.objects.get_or_create(pool=pool, name=settings.schedd_name, defaults=trusted)
    root = settings.submit_root
    try:  # a file system that is away must not look as if it were there
        root.mkdir(parents=True, exist_ok=True)
        if not any(root.iterdir()) and schedd.dags.exists():
            log.error("submit root not marked as WMS2's own: it is empty, is its file system mounted?", path=str(root))
        else:
            root_mark(root)
    except OSError as error:
        log.error("submit root not marked as WMS2's own; have the schedd checked", path=str(root), error=str(error))
    return schedd
