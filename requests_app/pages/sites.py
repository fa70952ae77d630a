"""The pages of sites: what is closed, by whom and until when, how jobs do there, what waits for it. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from django.http import QueryDict
from django.utils.safestring import SafeString

from requests_app.pages.cached import chart_drawn
from requests_app.pages.tables import AUDIT, Table, audit_of, table_of
from requests_app.pages.tables import MOST as MOST_OF_FILES
from requests_app.selectors.sites import (
    LONG_HOURS,
    MOST,
    WINDOWS,
    Affected,
    Concerned,
    Success,
    site_concerned,
    site_success,
)
from sites_app.api.filters import SiteFilters
from sites_app.bans import bans_active
from sites_app.models import Site, SiteBan, SiteStatus
from wms2.models import AuditEntry
from wms2.runtime import clock
from wms2.runtime.grouping import grouped
from wms2.web.time_range import TimeRange

MOST_BANS = 30
MOST_SAID = 30
_DAY = WINDOWS[1:2]


class SiteLine(NamedTuple):
    """A site, bans in force there, and how its jobs did in a day."""

    site: Site
    bans: Sequence[SiteBan]
    success: Success

    @property
    def for_all(self) -> SiteBan | None:
        """The ban of every request, which closes it."""
        return next((ban for ban in self.bans if ban.workflow_id is None), None)

    @property
    def others(self) -> int:
        """Bans of single requests."""
        return sum(ban.workflow_id is not None for ban in self.bans)


@dataclass(frozen=True, slots=True)
class SitesPage:
    """What the address asks for; sites that take no new work first. ``open``, ``slots``, ``running``: of those shown."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    lines: Sequence[SiteLine]
    statuses = SiteStatus

    @property
    def closed(self) -> int:
        """Sites that get no new work."""
        return sum(line.site.status != SiteStatus.ENABLED or line.for_all is not None for line in self.lines)


class SitePage(NamedTuple):
    """One site. ``bans``: those in force first, then the latest; ``said``: operators' and WMS2's decisions, the newest first."""

    site: Any
    bans: Sequence[tuple[SiteBan, str]]
    audit: Sequence[AuditEntry]
    success: Sequence[Success]
    failures: SafeString
    concerned: Concerned
    range: TimeRange
    long_hours: int = LONG_HOURS
    most: int = MOST


def sites_page(given: QueryDict) -> SitesPage:
    """Three queries."""
    filters = SiteFilters(given, queryset=Site.objects.order_by("name"))
    rows = list(filters.qs) if filters.is_valid() else []
    bans = grouped(bans_active().defer("failure_data") if rows else (), lambda ban: ban.site_id)
    success = site_success([row.name for row in rows], _DAY, clock.now()) if rows else {}
    lines = [SiteLine(row, bans[row.name], success[row.name][0]) for row in rows]
    return SitesPage(
        values={name: given.get(name, "") for name in filters.filters},
        errors={name: [str(one) for one in why] for name, why in filters.form.errors.items()},
        lines=sorted(lines, key=lambda line: (line.site.status == SiteStatus.ENABLED and line.for_all is None, line.site.name)),
    )


def site_page(site: Site, range_: TimeRange) -> SitePage:
    """Six queries."""
    now = clock.now()
    return SitePage(
        site=site,
        bans=sorted(_bans(site, now, MOST_BANS), key=lambda each: each[1] != "in force"),
        audit=list(audit_of("site", site.name)[:MOST_SAID]),
        success=site_success([site.name], WINDOWS, now)[site.name],
        failures=chart_drawn("failures", range_, title="Failed attempts by code", by="code", site=site.name),
        concerned=site_concerned(site.name, now),
        range=range_,
    )


def site_lists(site: Site) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself."""
    now = clock.now()

    def bans() -> Table:
        columns = ("state", "request_name", "reason", "created_by", "created_at", "expires_at", "removed_at", "removed_by")
        rows = _bans(site, now, MOST_OF_FILES)
        return Table(columns, [(state, ban.workflow and ban.workflow.request_id, *_BAN_SAYS(ban)) for ban, state in rows])

    def affected(rows: Iterable[Affected], since: str) -> Table:
        return Table(("request_name", "prep_id", "status", since, "jobs"), rows)

    return {
        "bans": bans,
        "waits": lambda: affected(site_concerned(site.name, now, MOST_OF_FILES).waits, "waits_since"),
        "alone": lambda: affected(site_concerned(site.name, now, MOST_OF_FILES).alone, "status_since"),
        "audit": table_of(audit_of("site", site.name), *AUDIT),
    }


def _bans(site: Site, now: datetime, most: int) -> list[tuple[SiteBan, str]]:
    """The latest, with whether each holds."""
    rows = SiteBan.objects.filter(site=site).select_related("workflow").only(*_BAN).order_by("-created_at")[:most]
    return [(ban, _state(ban, now)) for ban in rows]


_BAN = (
    "site", "workflow__request", "reason", "created_by", "created_at", "expires_at", "removed_at", "removed_by",
)  # fmt: skip
_BAN_SAYS = attrgetter(*_BAN[2:])


def _state(ban: SiteBan, now: Any) -> str:
    if ban.removed_at is not None:
        return f"ended by {ban.removed_by}"
    return "in force" if ban.expires_at > now else "ended"
