"""Bans of sites: no new work of one workflow, or of all, for a while (error-handling 6).

Only writes rows, inside its caller's transaction. A ban reaches a DAG when it is submitted (``avoid.inc``); running ones go on.
The guard: more than half of the sites are never banned at once, for then the fault is hardly theirs; an operator may insist.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db.models import Q, QuerySet

from sites_app.models import Site, SiteBan, SiteStatus
from wms2.errors import FieldRefused, InvalidTransition
from wms2.runtime import clock
from wms2.runtime.in_force import in_force

log = structlog.get_logger(__name__)
AUTOMATIC = "wms2"
#: In the audit: a site is banned, or would be.
BAN = "site_ban"
#: What a ban says of a site that has been taken off a request's lists; it is lifted when the site comes back.
LEFT = "no longer on the request's site lists"
OF_LISTS = "It stands for the site lists of its request; change these."
#: So long before the first of several bans work that was done speaks for the site.
WELL_BEFORE = timedelta(hours=1)


class SiteFailures(NamedTuple):
    """Attempts of jobs of one workflow at one site: all, and those that speak against the site."""

    attempts: int
    against_site: int

    @property
    def ratio(self) -> float:
        """Share that speaks against the site."""
        return self.against_site / self.attempts if self.attempts else 0.0


def bans_active(site: str | None = None) -> QuerySet[SiteBan]:
    """Bans in force."""
    rows = SiteBan.objects.filter(removed_at__isnull=True, expires_at__gt=clock.in_sql())
    return rows if site is None else rows.filter(site_id=site)


def bans_judged(site: Any) -> QuerySet[SiteBan]:
    """Of a site, those in force that say something of it: not what stands for site lists of requests."""
    return bans_active(site).exclude(reason__startswith=LEFT, workflow__isnull=False)


def stands_for_lists(ban: SiteBan) -> bool:
    """Whether it stands for the site lists of its request."""
    return ban.workflow_id is not None and ban.reason.startswith(LEFT)


def bans_left(workflow_id: Any) -> QuerySet[SiteBan]:
    """Of a workflow, those in force that stand for sites taken off its request's lists."""
    return bans_active().filter(workflow_id=workflow_id, reason__startswith=LEFT)


def by_whom(actor: str, until: datetime | None) -> str:
    """In words, behind what was done."""
    return f"{actor and f' by {actor}'}{f' until {until:%Y-%m-%d %H:%M} UTC' if until else ''}"


def site_ban(
    *,
    site: Site,
    workflow_id: uuid.UUID | None,
    reason: str,
    created_by: str,
    expires_at: datetime | None = None,
    candidates: Collection[str] = (),
    failure_data: Mapping[str, Any] | None = None,
    insist: bool = False,
) -> SiteBan:
    """Ban a site for one workflow, or for all; an equal ban in force is prolonged instead.

    Args:
        candidates: for a workflow: the sites it may run at; the guard counts among these.
        insist: an operator has read the guard's objection.

    Raises:
        InvalidTransition: more than half of the sites would be banned, or the end lies in the past.
    """
    now = clock.now()
    until = expires_at or now + timedelta(days=in_force().site_ban_duration_days)
    if until <= now:
        raise FieldRefused("expires_at", f"a ban until {until:%Y-%m-%d %H:%M} UTC is over already; give a time in the future")
    if not insist:
        _guard(site.name, workflow_id, candidates)
    same = bans_active(site.name).filter(Q(workflow_id=workflow_id)).first()
    if same is not None:
        if until > same.expires_at:
            same.expires_at, same.reason, same.created_by = until, reason, created_by
            same.save(update_fields=["expires_at", "reason", "created_by"])
        return same
    ban = SiteBan.objects.create(
        site=site, workflow_id=workflow_id, reason=reason, created_by=created_by, expires_at=until,
        failure_data=dict(failure_data or {}),
    )  # fmt: skip
    log.warning("site banned", site=site.name, workflow=str(workflow_id or "all"), until=until.isoformat(), reason=reason)
    return ban


def problem_sites(failures: Mapping[str, SiteFailures]) -> dict[str, SiteFailures]:
    """Sites with enough failures, and a large enough share of them, to be banned (error-handling 6.1)."""
    settings = in_force()
    return {
        site: seen
        for site, seen in failures.items()
        if seen.against_site >= settings.site_ban_min_failures and seen.ratio > settings.site_ban_failure_ratio
    }


def site_promote(site: Site, others_do_well: Callable[[Collection[uuid.UUID], datetime], int]) -> SiteBan | None:
    """A ban for all workflows once enough independent ones ban the site (error-handling 6.2); None before that.

    Args:
        others_do_well: work units that were done there since then, for others than these workflows.

    Raises:
        InvalidTransition: the guard objects, or others do well there.
    """
    bans = {ban.workflow_id: ban.created_at for ban in bans_judged(site.name)}
    workflows = {pk for pk in bans if pk is not None}
    if len(workflows) < in_force().site_ban_promotion_threshold or None in bans:
        return None
    since = min(bans.values()) - WELL_BEFORE
    if number := others_do_well(workflows, since):
        raise InvalidTransition(
            f"{len(workflows)} workflows ban it, but {number} work units of others were done there"
            f" since {since:%Y-%m-%d %H:%M} UTC: look at what these workflows have in common"
        )
    return site_ban(
        site=site, workflow_id=None, reason=f"{len(workflows)} workflows ban it independently", created_by=AUTOMATIC,
        failure_data={"workflows": sorted(str(pk) for pk in workflows)},
    )  # fmt: skip


def _guard(name: str, workflow_id: uuid.UUID | None, candidates: Collection[str]) -> None:
    open_sites = Site.objects.exclude(status=SiteStatus.DISABLED).values_list("name", flat=True)
    everywhere = set(open_sites if workflow_id is None else candidates)
    banned = {name, *bans_active().filter(Q(workflow_id=workflow_id)).values_list("site_id", flat=True)} & everywhere
    if len(banned) * 2 > len(everywhere):
        raise InvalidTransition(
            f"{len(banned)} of {len(everywhere)} sites would be banned ({', '.join(sorted(banned)[:5])}): when most sites fail,"
            " the fault is hardly theirs; look for a common cause, or insist"
        )
