"""Which lumis of an input file a request wants: ``LumiList``, cut by ``RunWhitelist``, minus ``RunBlacklist``.

Owns the rule for one file (docs/splitting.md, What is common). How a splitter applies the answer is the splitter's.
"""

from __future__ import annotations

from dags_app.planning import lumis
from dags_app.planning.specs import InputSpec, LumiRanges

#: Reason for a file of which nothing is wanted.
NO_WANTED_LUMI = "no lumi of the file survives LumiList and the run lists"


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
