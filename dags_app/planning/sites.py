"""Where the jobs of a file may run: its locations, within the white list, minus the black list.

Owns the rule and its reasons; bans and drains are not planned but included at submit time (``avoid.inc``).
"""

from __future__ import annotations

from dags_app.planning.specs import WorkflowSpec
from wms2.errors import PlanningRefused

#: Reason for a file that no disk holds.
NO_REPLICA = "no replica at any site"
#: Reason when the site lists alone leave nothing.
EMPTY_SITE_LISTS = "no site: the site white list minus the black list is empty"


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
