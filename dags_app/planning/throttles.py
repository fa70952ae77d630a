"""How many work units of a DAG run at once, and how many processing jobs of each (spec 3.1.2, 4.5). Pure.

DAGMan holds a category's limit within one DAGMan only: the outer one's are units, an inner one's the jobs of its unit. A limit on
the jobs of a whole workflow is therefore kept by the number of units that run at once, times what each may run (ADR 0004).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Throttles:
    """A workflow's limits by category, each at least 1; None: no limit of its own. A unit has one merge and one cleanup job."""

    merge_groups: int
    processing: int
    merge: int | None = None
    cleanup: int | None = None

    @classmethod
    def of(cls, limits: Mapping[str, int | None]) -> Throttles:
        """As ``as_dict`` has them."""
        return cls(limits["MergeGroup"] or 1, limits["Processing"] or 1, limits.get("Merge"), limits.get("Cleanup"))

    def as_dict(self) -> dict[str, int | None]:
        """By the names of the categories in the DAG files (spec 3.1.2)."""
        return {"MergeGroup": self.merge_groups, "Processing": self.processing, "Merge": self.merge, "Cleanup": self.cleanup}

    def units_at_once(self, share: int, jobs_per_unit: int) -> int:
        """As many as a share of idle jobs allows, within every limit, at least 1."""
        return max(min(self.most_units(jobs_per_unit), share // max(jobs_per_unit, 1)), 1)

    def most_units(self, jobs_per_unit: int) -> int:
        """Within every limit, at least 1. No more are begun than ``processing`` fills."""
        limits = [self.merge_groups, self.processing // max(jobs_per_unit, 1)]
        return max(min(*limits, *(limit for limit in (self.merge, self.cleanup) if limit is not None)), 1)

    def processing_in_unit(self, at_once: int) -> int:
        """Of one unit, when so many run at once."""
        return max(self.processing // max(at_once, 1), 1)
