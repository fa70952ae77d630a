"""A DAG's share of the jobs that may wait in the pool, and the units it may run at once for it (ADR 0004). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dags_app.planning.throttles import Throttles


@dataclass(frozen=True, slots=True)
class Share:
    """What is left of the idle-job budget, in equal parts.

    ``taken``: jobs that wait for a slot, and those that will because their units have begun; ``sharers``: requests that run or
    are about to, at least 1.
    """

    budget: int
    taken: int
    sharers: int

    @property
    def spent(self) -> bool:
        """Nothing is left: no request starts."""
        return self.taken >= self.budget

    @property
    def jobs(self) -> int:
        """Idle jobs for each."""
        return max(self.budget - self.taken, 0) // max(self.sharers, 1)

    def follows(self, running: Running, units: int) -> int:
        """Units at once of a DAG of which so many run: more or fewer, as its jobs that wait are below or above its part."""
        spare = self.budget // max(self.sharers, 1) - running.taken
        return units + min(spare, max(self.budget - self.taken, 0)) // max(running.jobs_per_unit, 1)

    def units(self, throttles: Throttles, jobs_per_unit: int, units: int | None = None) -> int:
        """Units at once of a DAG with so many jobs in each, and ``units`` in all where that is known; at least 1."""
        wanted = throttles.units_at_once(self.jobs, jobs_per_unit)
        return wanted if units is None else max(min(wanted, units), 1)


@dataclass(frozen=True, slots=True)
class Running:
    """A live DAG, or one that is about to be. ``idle``, of it ``landing``: jobs that wait, as counted; None before the first."""

    idle: int | None
    landing: int
    units_at_once: int
    jobs_per_unit: int

    @property
    def taken(self) -> int:
        """Each unit whose site is being elected has its jobs behind it; before a DAG is counted, all that it may run."""
        if self.idle is None:
            return self.units_at_once * self.jobs_per_unit
        return self.idle - self.landing + self.landing * self.jobs_per_unit


def share_of(budget: int, running: Iterable[Running], *, sharers: int) -> Share:
    """As things are."""
    return Share(budget, sum(each.taken for each in running), sharers)
