"""Sites as requests see them: how jobs do there, what waits too long, which requests can run nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, Exists, IntegerField, OuterRef, QuerySet, Subquery

from dags_app.models import IN_QUEUE, LIVE_SITE_JOB, Leftover, SiteJob, WorkUnitState
from requests_app.models import TERMINAL, RequestStatus
from requests_app.selectors.parts import LEFTOVER_FAILING, LEFTOVER_OPEN
from sites_app.bans import bans_judged
from sites_app.models import Site, SiteRse
from wms2.runtime.sql import sql_rows
from wms2.web.formatting import word

#: Jobs that have waited for longer while none of their request's began there are shown.
LONG_HOURS = 24
#: Hours, and the length of the samples that are read for them (``dags_app.models.BUCKETS``).
WINDOWS = ((1, 300), (24, 600), (168, 3600))
MOST = 20
_SUCCESS = """
WITH windows AS (
  SELECT hours, seconds, %(now)s - hours * interval '1 hour' AS begins
  FROM unnest(%(hours)s::int[], %(seconds)s::int[]) asked(hours, seconds)
), failed AS (
  SELECT hours, site, sum(attempts) AS attempts FROM windows, LATERAL (
    SELECT site, sum(failures) AS attempts FROM samples
    WHERE seconds = windows.seconds AND by = 'site' AND site = ANY(%(sites)s) AND at >= begins GROUP BY site
    UNION ALL
    SELECT site, sum(failures) FROM samples WHERE seconds = 0 AND site = ANY(%(sites)s) AND at >= begins GROUP BY site
  ) found GROUP BY 1, 2
)
SELECT sites.name, hours, done.jobs, coalesce(failed.attempts, 0)
FROM unnest(%(sites)s::text[]) sites(name) CROSS JOIN windows CROSS JOIN LATERAL (
  SELECT coalesce(sum(jobs), 0) + count(*) AS jobs FROM work_units
  WHERE site = sites.name AND state = %(done)s AND done_at >= begins
) done NATURAL LEFT JOIN (SELECT hours, site AS name, attempts FROM failed) failed
"""
_CONCERNED = """
(SELECT 'waits', r.request_name, r.prep_id, r.status, (d.jobs->'waits'->>%(site)s)::timestamptz AS since,
   coalesce((d.jobs->'sites'->%(site)s->>'idle')::int, 0) AS jobs
 FROM dags d JOIN workflows w ON w.id = d.workflow_id JOIN requests r ON r.request_name = w.request_name
 WHERE d.status = ANY(%(in_queue)s) AND (d.jobs->'waits'->>%(site)s)::timestamptz < %(now)s - %(long)s * interval '1 hour'
 ORDER BY since LIMIT %(most)s)
UNION ALL
(SELECT 'alone', r.request_name, r.prep_id, r.status, r.status_since, 0
 FROM workflows w JOIN requests r ON r.request_name = w.request_name
 WHERE w.config_data->'site_whitelist' = to_jsonb(ARRAY[%(site)s::text]) AND w.config_data->'site_whitelist' <> '[]'
   AND r.status <> ALL(%(ended)s)
 ORDER BY r.status_since LIMIT %(most)s)
"""


class Success(NamedTuple):
    """Of jobs at a site in the last hours: those of units done then, and failed attempts."""

    hours: int
    ended_well: int
    failed: int

    @property
    def percent(self) -> str:
        """Of all that ended; empty: none has."""
        ended = self.ended_well + self.failed
        return f"{self.ended_well / ended * 100:.1f}" if ended else ""

    @property
    def colour(self) -> str:
        """How it looks."""
        share = self.failed / max(self.ended_well + self.failed, 1)
        return "bad" if share > 0.2 else "waiting" if share > 0.05 else "good"


class Affected(NamedTuple):
    """A request, since when it waits or is in its status, and its jobs that wait."""

    request_name: str
    prep_id: str
    status: str
    since: datetime
    jobs: int

    @property
    def status_word(self) -> RequestStatus:
        """The status, to be shown."""
        return word(RequestStatus, self.status)


class Concerned(NamedTuple):
    """``waits``: with jobs that wait there too long; ``alone``: whose lists name this site and no other."""

    waits: list[Affected]
    alone: list[Affected]


def site_success(sites: Collection[str], windows: Collection[tuple[int, int]], now: datetime) -> Mapping[str, list[Success]]:
    """Site -> of each window; one statement over an index of work units and sums of samples."""
    values = {
        "sites": list(sites), "hours": [hours for hours, _ in windows], "seconds": [seconds for _, seconds in windows],
        "done": WorkUnitState.DONE, "now": now,
    }  # fmt: skip
    found: dict[str, list[Success]] = {site: [] for site in sites}
    for site, hours, ended_well, failed in sql_rows(_SUCCESS, values):
        found[site].append(Success(hours, int(ended_well), int(failed)))
    return {site: sorted(each) for site, each in found.items()}


def site_concerned(site: str, now: datetime, most: int = MOST) -> Concerned:
    """One statement over what is in a queue, and over an index of lists of one site."""
    ended = [*TERMINAL, RequestStatus.COMPLETED]
    values = {
        "site": site, "in_queue": list(IN_QUEUE), "now": now, "long": LONG_HOURS, "most": most, "ended": ended,
    }  # fmt: skip
    found: dict[str, list[Affected]] = {"waits": [], "alone": []}
    for what, *row in sql_rows(_CONCERNED, values):
        found[what].append(Affected(*row))
    return Concerned(**found)


def sites_with_storage() -> QuerySet[Any]:
    """Sites with their RSEs, what the cleaner has to do there, and whether a ban is in force; in the same statement."""
    leftovers = Leftover.objects.filter(LEFTOVER_OPEN, site=OuterRef("pk"))
    return Site.objects.annotate(
        storage=ArraySubquery(SiteRse.objects.filter(site=OuterRef("pk")).order_by("rse").values("rse")),
        leftovers=_number(leftovers),
        leftovers_failing=_number(leftovers.filter(LEFTOVER_FAILING)),
        site_jobs=_number(SiteJob.objects.filter(site=OuterRef("pk"), state__in=LIVE_SITE_JOB)),
        has_bans=Exists(bans_judged(OuterRef("pk"))),
    )


def _number(rows: QuerySet[Any]) -> Subquery:
    """Rows by site; NULL for a site without any."""
    return Subquery(rows.order_by().values("site").annotate(number=Count("pk")).values("number"), output_field=IntegerField())
