"""LumiBased and EventAwareLumiBased: lumis of one run to a job, each lumi with all its files (docs/splitting.md).

Owns how lumis are dealt to jobs and which are refused; ``lumi_files.py`` owns the order of the files and what they share.

Files go in the order of their lowest run, lumis ascending inside; a job closes when it is full, when the run changes, at a file
boundary if asked, and at the end of a location group. A lumi that lies in several files goes to one job, with all of them,
where the first of them stands; its sites are those that all these files have in common. So every share of a
lumi is read by exactly one job, and a lumi is one claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from dags_app.planning import lumis
from dags_app.planning.lumis import round_half_even, round_to_lumis
from dags_app.planning.selection import SiteChoice
from dags_app.planning.specs import InputFileSpec, InputSpec, JobSpec, LumiRanges, PlanItem, RefusedLumi, WorkflowSpec
from dags_app.planning.splitters.lumi_files import Group, Piece, ReadableFile, collect, pieces_by_group

#: What a lumi takes of a job's limit; a fraction only where a file has less than one event to a lumi.
Cost = int | Fraction


class _JobLimits(NamedTuple):
    """How jobs are filled: what the lumis of one may cost together (a job of one lumi may cost more), what one lumi costs that
    exactly these files hold, and why no job may take a lumi of such a cost; ``too_long``: lumis known to be so, and why."""

    limit: int
    cost_of: Callable[[tuple[ReadableFile, ...]], Cost]
    too_large: Callable[[Cost], str | None] = lambda cost: None
    too_long: Mapping[tuple[int, int], str] = {}


def split_by_lumis(workflow: WorkflowSpec, asked: InputSpec, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
    """LumiBased: ``lumis_per_job`` lumis to a job; a lumi counts once, in however many files it lies."""
    return _split(workflow, asked, files, _JobLimits(workflow.splitting.lumis_per_job, lambda holders: 1))


def split_by_events_of_lumis(workflow: WorkflowSpec, asked: InputSpec, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
    """EventAwareLumiBased: ``events_per_job`` events to a job, by each file's average of events per lumi.

    The average is rounded to a whole number, half to even; where that gives 0 for a file that has events, the exact average
    counts, so that thin files keep the limit. Lumis of files without events cost nothing. A lumi in several files costs the
    sum. One that would run longer than the job time limit is refused, alone: by its own count where the catalogue has it and that
    is far from the average, which then is that of the others.
    """
    splitting, seconds_per_event = workflow.splitting, workflow.resources.time_per_event_seconds
    files = list(files)
    known: dict[tuple[int, int], int] = {}
    for file in files:
        for run, first, last, events in file.odd_lumis:
            for lumi in range(first, last + 1) if events else ():
                known[run, lumi] = known.get((run, lumi), 0) + events

    def too_large(cost: Cost, about: str = "about ") -> str | None:
        seconds = float(cost) * seconds_per_event
        if seconds <= splitting.job_time_limit_seconds:
            return None
        return (
            f"a lumi of {about}{round(cost)} events would run {seconds / 3600:.1f} h, longer than the job time limit of "
            f"{splitting.job_time_limit_seconds / 3600:g} h"
        )

    limit = round_to_lumis(splitting.events_per_job, splitting.events_per_lumi)
    too_long = {lumi: why for lumi, events in known.items() if (why := too_large(events, ""))}
    return _split(workflow, asked, files, _JobLimits(limit, _events_of, too_large, too_long))


def _events_of(holders: tuple[ReadableFile, ...]) -> Cost:
    return _average(holders[0]) if len(holders) == 1 else sum(map(_average, holders), start=0)


def _split(workflow: WorkflowSpec, asked: InputSpec, files: Iterable[InputFileSpec], limits: _JobLimits) -> Iterator[PlanItem]:
    """Excluded files by name, then jobs and refused lumis, location group by location group.

    All files are read before the first job comes: any two may share a lumi. The order of ``files`` does not matter.

    Raises:
        ValueError: a file is given twice.
        PlanningRefused: a file is left in part by events, which a lumi splitting cannot take.
    """
    choice, halt = SiteChoice(workflow), workflow.splitting.halt_job_on_file_boundaries
    held, excluded, refused = collect(asked, choice, files, limits.too_long)
    yield from excluded
    for (run, lumi), lfns in refused.items():
        yield RefusedLumi(run, lumi, limits.too_long[run, lumi], tuple(lfns))
    for group, pieces_by_file in pieces_by_group(held):
        if choice.problem(group) is None:
            yield from _fill_jobs(pieces_by_file, choice.sites(group), limits, halt)
        else:
            yield from _without_a_site(pieces_by_file)


def _fill_jobs(pieces_by_file: Iterator[list[Piece]], sites: Group, limits: _JobLimits, halt: bool) -> Iterator[PlanItem]:
    job = _OpenJob(sites)
    limit, cost_of, too_large, _ = limits
    for pieces in pieces_by_file:
        if halt and job.intervals:
            yield job.close()
        for run, first, last, holders in pieces:
            cost = cost_of(holders)
            reason = too_large(cost)
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


def _average(file: ReadableFile) -> Cost:
    return round_half_even(file.events, file.lumis) or (Fraction(file.events, file.lumis) if file.events else 0)


def _without_a_site(pieces_by_file: Iterator[list[Piece]]) -> Iterator[RefusedLumi]:
    """Only lumis of several files come here: files that no site of the request holds were excluded before."""
    for pieces in pieces_by_file:
        for run, first, last, holders in pieces:
            where = "; ".join(f"{file.lfn} at {', '.join(sorted(file.group))}" for file in holders[:3])
            more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
            reason = (
                f"it lies in {len(holders)} files that no site of the request has all of ({where}{more}); with "
                "TrustSitelists they are read from the sites of the request's lists"
            )
            yield from _refused(run, first, last, holders, reason, for_lack_of_site=True)


def _refused(
    run: int, first: int, last: int, holders: tuple[ReadableFile, ...], reason: str, *, for_lack_of_site: bool = False
) -> Iterator[RefusedLumi]:
    lfns = tuple([file.lfn for file in holders])
    for lumi in range(first, last + 1):
        yield RefusedLumi(run, lumi, reason, lfns, for_lack_of_site)


class _OpenJob:
    """The job that is being filled, with lumis of one run: closed, and so emptied, before ``run`` changes."""

    __slots__ = ("cost", "events", "files", "intervals", "run", "sites")

    def __init__(self, sites: Group) -> None:
        self.sites = sites
        self.run = 0
        self._start()

    def _start(self) -> None:
        self.cost: Cost = 0
        self.events = 0
        self.files: dict[int, ReadableFile] = {}  # by position
        self.intervals: list[lumis.Interval] = []

    def take(self, first: int, last: int, holders: tuple[ReadableFile, ...], cost: Cost) -> None:
        """Add lumis, with all files that hold them."""
        count = last - first + 1
        self.cost += cost * count
        for file in holders:
            self.files[file.position] = file
            self.events += file.take(count)
        self.intervals.append((first, last))

    def close(self) -> JobSpec:
        """The job as it is; empties this one."""
        intervals = self.intervals
        mask: LumiRanges = {self.run: lumis.merged(sorted(intervals)) if len(intervals) > 1 else tuple(intervals)}
        files = tuple([self.files[position].job_file for position in sorted(self.files)])
        job = JobSpec(self.events, self.sites, None, files, mask, True)
        self._start()
        return job
