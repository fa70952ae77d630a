"""What of its input a request reads, and where: run and lumi lists, and site lists (docs/splitting.md, What is common).

Owns the rules for one file and their reasons. How a splitter applies the answers is the splitter's; bans and drains are not
planned but included at submit time (``avoid.inc``).
"""

from __future__ import annotations

from dags_app.planning import lumis
from dags_app.planning.specs import InputSpec, LumiRanges, WorkflowSpec
from wms2.errors import PlanningRefused

#: Reason for a file that no disk holds.
NO_REPLICA = "no replica at any site"
#: Reason when the site lists alone leave nothing.
EMPTY_SITE_LISTS = "no site: the site white list minus the black list is empty"
#: Reason for a file of which nothing is wanted.
NO_WANTED_LUMI = "no lumi of the file survives LumiList and the run lists"


class SiteChoice:
    """Site lists of one request. ``TrustSitelists`` puts all files in one group that runs on white list minus black list."""

    def __init__(self, workflow: WorkflowSpec) -> None:
        self._whitelist = frozenset(workflow.site_whitelist)
        self._blacklist = frozenset(workflow.site_blacklist)
        self._trusted = workflow.trust_sitelists

    def group(self, locations: frozenset[str]) -> frozenset[str]:
        """Files with the same answer may share a job: the exact set of locations, before site lists are looked at."""
        return self._whitelist if self._trusted else locations

    def sites(self, locations: frozenset[str]) -> frozenset[str]:
        """Sites of the jobs of files there; empty when the site lists leave none. An empty white list admits every location."""
        if self._trusted:
            return self._whitelist - self._blacklist
        return (locations & self._whitelist if self._whitelist else locations) - self._blacklist

    def problem(self, locations: frozenset[str]) -> str | None:
        """Why no job can read files there, or None. With ``TrustSitelists`` it does not matter where they are."""
        if self._trusted:
            return None if self.sites(locations) else EMPTY_SITE_LISTS
        if not locations:
            return NO_REPLICA
        if self.sites(locations):
            return None
        return f"no site: the replicas are at {', '.join(sorted(locations))}, the site lists admit none of these"

    def for_generation(self) -> frozenset[str]:
        """Sites of jobs without input.

        Raises:
            PlanningRefused: no site is left.
        """
        sites = self._whitelist - self._blacklist
        if not sites:
            raise PlanningRefused(f"{EMPTY_SITE_LISTS}; name at least one site to run at")
        return sites


class WantedLumis:
    """The lumi and run lists of one request.

    Attributes:
        has_lumi_list: the request names lumis.
        has_run_lists: the request names runs.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._lumi_list = spec.lumi_list
        self._whitelist = frozenset(spec.run_whitelist) or None
        self._blacklist = frozenset(spec.run_blacklist)
        self.has_lumi_list = bool(spec.lumi_list)
        self.has_run_lists = self._whitelist is not None or bool(self._blacklist)

    @property
    def everything(self) -> bool:
        """True when the request names neither lumis nor runs."""
        return not (self.has_lumi_list or self.has_run_lists)

    def among(self, ranges: LumiRanges) -> LumiRanges:
        """Those of the given lumis that are wanted."""
        if self.has_run_lists:
            ranges = lumis.restrict_runs(ranges, whitelist=self._whitelist, blacklist=self._blacklist)
        return lumis.intersect(ranges, self._lumi_list) if self.has_lumi_list else ranges


def wanted_share(events: int, held: LumiRanges, wanted: LumiRanges) -> int:
    """The events of a file that its wanted lumis are expected to hold, spread evenly over all of them; rounded up."""
    if wanted == held or not events:
        return events
    return -(-events * lumis.count(wanted) // max(lumis.count(held), 1))
