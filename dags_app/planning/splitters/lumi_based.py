"""LumiBased and EventAwareLumiBased: lumis of one run to a job, each lumi with all its files (docs/splitting.md).

Owns how lumis are dealt to jobs and which are refused; ``lumi_files.py`` owns the order of the files and what they share.

Files go in the order of their lowest run, lumis ascending inside; a job closes when it is full, when the run changes, at a file
boundary if asked, and at the end of a location group. A lumi that lies in several files goes to one job, with all of them,
where the first of them stands; the places of that job are those that all these files have in common. So every share of a
lumi is read by exactly one job, and a lumi is one claim.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from fractions import Fraction

from dags_app.planning import lumis
from dags_app.planning.sites import SiteChoice
from dags_app.planning.specs import InputFileSpec, JobSpec, LumiRanges, PlanItem, RefusedLumi, WorkflowSpec
from dags_app.planning.splitters.lumi_files import Group, HeldFile, Tour, collect, tours
from dags_app.planning.splitters.rounding import round_half_even, round_to_lumis
from wms2.errors import PlanningRefused

#: What a lumi takes of a job's limit; a fraction only where a file has less than one event to a lumi.
Cost = int | Fraction


class LumiSplitter(ABC):
    """What the two have in common. A subclass says what a job may take and what a lumi costs of that."""

    def __init__(self, workflow: WorkflowSpec) -> None:
        if workflow.input is None:
            raise PlanningRefused(f"{workflow.splitting.algorithm} needs an input dataset")
        self._input = workflow.input
        self._choice = SiteChoice(workflow)
        self._halt = workflow.splitting.halt_job_on_file_boundaries
        self._limit = self._job_limit(workflow)

    @abstractmethod
    def _job_limit(self, workflow: WorkflowSpec) -> int:
        """What the lumis of one job may cost together; a job of one lumi may cost more."""

    @abstractmethod
    def _cost(self, holders: tuple[HeldFile, ...]) -> Cost:
        """What one lumi costs that exactly these files hold."""

    def _too_large(self, cost: Cost) -> str | None:
        """Why no job may take a lumi of this cost, or None."""
        return None

    def split(self, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
        """Excluded files by name, then jobs and refused lumis, location group by location group.

        All files are read before the first job comes: any two may share a lumi. The order of ``files`` does not matter.

        Raises:
            ValueError: a file is given twice.
            PlanningRefused: a file is left in part by events, which a lumi splitting cannot take.
        """
        collected = collect(self._input, self._choice, files)
        yield from collected.excluded
        for tour in tours(collected.files):
            if self._choice.problem(tour.group) is None:
                yield from self._deal(tour, self._choice.sites(tour.group))
            else:
                yield from _without_a_site(tour)

    def _deal(self, tour: Tour, sites: Group) -> Iterator[PlanItem]:
        job = _OpenJob(sites)
        limit, cost_of, halt = self._limit, self._cost, self._halt
        for stop in tour.stops():
            if halt and job.intervals:
                yield job.close()
            for run, pieces in stop:
                for first, last, holders in pieces:
                    cost = cost_of(holders)
                    reason = self._too_large(cost)
                    if reason is not None:
                        yield from _refused(run, first, last, holders, reason)
                        continue
                    if job.run != run:
                        if job.intervals:
                            yield job.close()
                        job.run = run
                    while first <= last:
                        count = last - first + 1
                        if cost:
                            count = min(count, int((limit - job.cost) // cost))
                            if count < 1:
                                if job.intervals:
                                    yield job.close()
                                    continue
                                count = 1
                        job.take(first, first + count - 1, holders, cost)
                        first += count
        if job.intervals:
            yield job.close()


class LumiBasedSplitter(LumiSplitter):
    """``lumis_per_job`` lumis to a job; a lumi counts once, in however many files it lies."""

    def _job_limit(self, workflow: WorkflowSpec) -> int:
        if workflow.splitting.lumis_per_job < 1:
            raise PlanningRefused(f"LumisPerJob must be at least 1, not {workflow.splitting.lumis_per_job}")
        return workflow.splitting.lumis_per_job

    def _cost(self, holders: tuple[HeldFile, ...]) -> Cost:
        return 1


class EventAwareLumiBasedSplitter(LumiSplitter):
    """``events_per_job`` events to a job, by each file's average of events per lumi.

    The average is rounded to a whole number, half to even; where that gives 0 for a file that has events, the exact average
    counts, so that thin files keep the limit. Lumis of files without events cost nothing. A lumi in several files costs the
    sum. One that would run longer than the job time limit is refused, alone.
    """

    def _job_limit(self, workflow: WorkflowSpec) -> int:
        splitting = workflow.splitting
        if splitting.events_per_job < 1:
            raise PlanningRefused(f"EventsPerJob must be at least 1, not {splitting.events_per_job}")
        self._seconds_per_event = workflow.resources.time_per_event_seconds
        self._time_limit_seconds = splitting.job_time_limit_seconds
        if splitting.events_per_lumi > 0:
            return round_to_lumis(splitting.events_per_job, splitting.events_per_lumi)
        return splitting.events_per_job

    def _cost(self, holders: tuple[HeldFile, ...]) -> Cost:
        if len(holders) == 1:
            return _average(holders[0])
        return sum((_average(file) for file in holders), start=0)

    def _too_large(self, cost: Cost) -> str | None:
        seconds = float(cost) * self._seconds_per_event
        if seconds <= self._time_limit_seconds:
            return None
        return (
            f"a lumi of about {round(cost)} events would run {seconds / 3600:.1f} h, longer than the job time limit of "
            f"{self._time_limit_seconds / 3600:g} h"
        )


def _average(file: HeldFile) -> Cost:
    return round_half_even(file.events, file.lumis) or (Fraction(file.events, file.lumis) if file.events else 0)


def _without_a_site(tour: Tour) -> Iterator[RefusedLumi]:
    """Only lumis of several files come here: files that no site of the request holds were excluded before."""
    for stop in tour.stops():
        for run, pieces in stop:
            for first, last, holders in pieces:
                where = "; ".join(f"{file.lfn} at {', '.join(sorted(file.group))}" for file in holders[:3])
                more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
                reason = (
                    f"it lies in {len(holders)} files that no site of the request has all of ({where}{more}); with "
                    "TrustSitelists they are read from the sites of the request's lists"
                )
                yield from _refused(run, first, last, holders, reason, for_lack_of_site=True)


def _refused(
    run: int, first: int, last: int, holders: tuple[HeldFile, ...], reason: str, *, for_lack_of_site: bool = False
) -> Iterator[RefusedLumi]:
    lfns = tuple([file.lfn for file in holders])
    for lumi in range(first, last + 1):
        yield RefusedLumi(run, lumi, reason, lfns, for_lack_of_site)


class _OpenJob:
    """The job that is being filled; ``close`` starts the next one, of the same run."""

    __slots__ = ("cost", "events", "files", "intervals", "run", "sites")

    def __init__(self, sites: Group) -> None:
        self.sites = sites
        self.run = 0
        self._start()

    def _start(self) -> None:
        self.cost: Cost = 0
        self.events = 0
        self.files: dict[int, HeldFile] = {}  # by place
        self.intervals: list[lumis.Interval] = []

    def take(self, first: int, last: int, holders: tuple[HeldFile, ...], cost: Cost) -> None:
        """Add lumis, with all files that hold them."""
        count = last - first + 1
        self.cost += cost * count
        for file in holders:
            self.files[file.place] = file
            self.events += file.deal(count)
        self.intervals.append((first, last))

    def close(self) -> JobSpec:
        """The job as it is; empties this one."""
        intervals = self.intervals
        mask: LumiRanges = {self.run: lumis.merged(sorted(intervals)) if len(intervals) > 1 else tuple(intervals)}
        files = tuple([self.files[place].job_file for place in sorted(self.files)])
        job = JobSpec(self.events, self.sites, None, files, mask, True)
        self._start()
        return job
