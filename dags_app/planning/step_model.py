"""What a step is expected to take in a slot, from what all rounds measured of it: busy cores, time and memory.

Measured numbers of the very same layout (processes x threads) go before models; models carry them over to layouts and job lengths
that have not run yet. Pure. Memory in MB, times in seconds. Spec 5.4 to 5.6; ADR 0009.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

from dags_app.planning.measured import StepMeasured

#: What one more thread of a CMSSW process takes at most, where only one thread count has been measured.
THREAD_MB = 250
#: Rounds tell of a leak only when their jobs differ that much in length: else noise would make slopes.
LENGTHS_DIFFER = 1.5
#: Part of its memory that a step has to have grown by; less is noise.
_GROWTH = 0.03
#: Events that a filter has to have passed, or should have, before its measured efficiency is believed.
_FILTERED_EVENTS = 20
_LEAST_BUSY = 0.01


class Layout(NamedTuple):
    """How a step runs inside a slot."""

    processes: int
    threads: int  # of each process


class _Line(NamedTuple):
    """``y`` over ``x``, through the middle of what was measured."""

    x: float
    y: float
    slope: float

    def at(self, x: float) -> float:
        return self.y + self.slope * (x - self.x)


def _line(points: Iterable[tuple[float, float, float]]) -> _Line:
    """Weighted least squares through (x, y, weight); a single x has no slope."""
    points = list(points)
    total = sum(weight for _, _, weight in points)
    x = sum(weight * x for x, _, weight in points) / total
    y = sum(weight * y for _, y, weight in points) / total
    spread = sum(weight * (each - x) ** 2 for each, _, weight in points)
    slope = sum(weight * (each - x) * (value - y) for each, value, weight in points) / spread if spread > 1e-12 * x * x else 0.0
    return _Line(x, y, slope)


@dataclass(frozen=True, slots=True)
class StepModel:
    """One step; ``rows`` of all rounds, and of each the events that the first step of the task read in those jobs.

    "Per event" is per event of the task, which its first step reads: a step behind a filter may read none in many jobs.
    """

    rows: tuple[StepMeasured, ...]
    events: tuple[float, ...]
    min_jobs: int

    @property
    def jobs(self) -> int:
        """That were measured."""
        return sum(row.jobs for row in self.rows)

    @property
    def cpu_per_event(self) -> float:
        """CPU seconds."""
        return sum(row.cpu_seconds for row in self.rows) / sum(self.events)

    def passes(self, hinted: float) -> float:
        """Share of events that the step writes of those it reads; as hinted until enough have passed, or should have."""
        written, read = sum(row.events_written for row in self.rows), sum(row.events_read for row in self.rows)
        if max(written, hinted * read) < _FILTERED_EVENTS:
            return hinted
        return min(max(written, 1) / read, 1.0)

    def bytes_per_event(self, module: str | None = None) -> float:
        """Bytes that the step (or one of its output modules) writes."""
        written = (size for row in self.rows for name, size in row.bytes_written.items() if module in (None, name))
        return sum(written) / sum(self.events)

    def events_per(self, what: str) -> float:
        """Events of an input lumi or file, as ``what`` (a splitting's parameter) counts; 0 when nobody told."""
        counted = [(row.lumis_read if what == "lumis_per_job" else row.files_read, row.events_read) for row in self.rows]
        pieces = sum(count for count, _ in counted)
        return sum(events for count, events in counted if count) / pieces if pieces else 0.0

    def lengths(self) -> list[float]:
        """Typical length of the step in each set of jobs."""
        return [row.job_seconds.p50 for row in self.rows]

    def _enough(self, rows: Sequence[StepMeasured]) -> bool:
        return sum(row.jobs for row in rows) >= self.min_jobs

    def _alike(self, layout: Layout) -> list[StepMeasured]:
        """What ran in just this layout, if it was enough."""
        rows = [row for row in self.rows if (row.processes, row.threads) == layout]
        return rows if self._enough(rows) else []

    def has_run(self, layout: Layout) -> bool:
        """Whether enough jobs ran the step just so."""
        return bool(self._alike(layout))

    def margin(self, layout: Layout, margin: float) -> float:
        """Margin that a layout must leave: little where just this ran, or has fewer threads than what was measured."""
        known = self.has_run(layout) or (len(self.thread_counts) == 1 and layout.threads < self.thread_counts[0])
        return margin / 4 if known else margin

    @property
    def split_before(self) -> bool:
        """It ran as several processes."""
        return any(row.processes > 1 for row in self.rows)

    @property
    def thread_counts(self) -> list[int]:
        """Of one process, ascending."""
        return sorted({row.threads for row in self.rows})

    def busy(self, threads: int) -> float:
        """Cores that one process keeps busy.

        One thread count measured: Amdahl's law from what was busy; below one core all CPU is serial, and threads share the
        waiting. From two on: wall time over 1/threads as a line, so that waiting and serial parts are told apart.
        """
        rows = [row for row in self.rows if row.threads == threads]
        if self._enough(rows):
            return _busy(rows)
        counts = self.thread_counts
        points = [(1 / count, 1 / _busy(found), sum(row.jobs for row in found)) for count, found in self._by_threads()]
        if len(counts) > 1:
            line = _line(points)
            parallel = max(line.slope, 0.0)
            serial = max(line.y - parallel * line.x, 0.0)
            if not serial:
                parallel = line.y / line.x
        else:
            (count,), ((_, wall, _),) = counts, points
            parallel, serial = wall, 0.0
            if count > 1:
                serial = min(max((count * wall - 1) / (count - 1), 0.0), 1.0)
                parallel = count * (wall - serial)
        return min(1 / (parallel / threads + serial), float(threads))

    def _by_threads(self) -> list[tuple[int, list[StepMeasured]]]:
        return [(count, [row for row in self.rows if row.threads == count]) for count in self.thread_counts]

    def seconds_per_event(self, layout: Layout, cores: int) -> float:
        """Wall seconds of a job."""
        alike = [at for at, row in enumerate(self.rows) if (row.processes, row.threads) == layout]
        if self._enough([self.rows[at] for at in alike]):
            return sum(self.rows[at].wall_seconds for at in alike) / sum(self.events[at] for at in alike)
        return self.cpu_per_event / min(layout.processes * self.busy(layout.threads), cores)

    def slowness(self) -> float:
        """Wall time of the p95 job over that of all, for as many events; long jobs, which spread less, weigh more."""
        walls = sum(row.wall_seconds for row in self.rows)
        by_event = sum(row.seconds_per_event.p95 * row.events_read for row in self.rows)
        return max(min(by_event, sum(row.job_seconds.p95 * row.jobs for row in self.rows)) / walls, 1.0)

    def slot_rss(self, layout: Layout, seconds: float) -> float:
        """p95 of the memory of all processes of a layout, when the step runs that long in a job."""
        level, leak, surely = self._memory(layout)
        longer = seconds - level.x
        return max(level.y + leak * (longer if surely else max(longer, 0.0)), level.y / 2)

    def seconds_within(self, layout: Layout, memory_mb: float) -> float:
        """How long it may run until it takes this memory; infinite when it does not grow."""
        level, leak, _ = self._memory(layout)
        return level.x + (memory_mb - level.y) / leak if leak > 0 else inf

    def _memory(self, layout: Layout) -> tuple[_Line, float, bool]:
        """Memory over length at the middle of what was measured, MB it grows by in a second, whether that is sure.

        Where the layout itself ran at one length only, growth is at least what longer jobs of as few or fewer threads took more.
        """
        processes, threads = layout
        alike = self._alike(layout)
        if alike:
            points = [(row.job_seconds.p50, row.slot_rss_mb.p95, row.jobs) for row in alike]
        else:
            of_one = [row for row in self.rows if row.threads == threads]
            rows = of_one if self._enough(of_one) else self.rows
            points = [
                (row.job_seconds.p50, _together(row, processes) + processes * self._for_threads(row, threads), row.jobs)
                for row in rows
            ]
        level = _line(points)
        if _differ(points):
            lengths = [length for length, _, _ in points]
            grown = level.slope * (max(lengths) - min(lengths))
            return level, level.slope if grown > _GROWTH * level.y else 0.0, True
        slopes = (
            (_together(long, processes) - _together(short, processes)) / (long.job_seconds.p50 - short.job_seconds.p50)
            for long in self.rows
            for short in self.rows
            if long.job_seconds.p50 > LENGTHS_DIFFER * short.job_seconds.p50 and threads <= long.threads <= short.threads
        )
        leak = max((0.0, *slopes))
        return level, leak if leak * level.x > _GROWTH * level.y else 0.0, False

    def _for_threads(self, row: StepMeasured, threads: int) -> float:
        """MB that one process takes more with other threads: along a line, else up by a fixed step and down not at all."""
        more = threads - row.threads
        points = [
            (float(count), sum(_together(each, 1) * each.jobs for each in rows) / jobs, jobs)
            for count, rows in self._by_threads()
            if (jobs := sum(each.jobs for each in rows))
        ]
        if len(points) == 1:
            return THREAD_MB * max(more, 0.0)
        return max(more * max(_line(points).slope, 0.0), -_together(row, 1) / 2)


def _together(row: StepMeasured, processes: int) -> float:
    """p95 of the memory of so many of these processes side by side: they do not all peak high in the same job."""
    typical, p95 = row.slot_rss_mb.p50, row.slot_rss_mb.p95
    return typical * processes / row.processes + (p95 - typical) * sqrt(processes / row.processes)


def _differ(points: Sequence[tuple[float, float, float]]) -> bool:
    lengths = [length for length, _, _ in points]
    return bool(lengths) and max(lengths) >= LENGTHS_DIFFER * min(lengths)


def _busy(rows: Sequence[StepMeasured]) -> float:
    """Cores that a process of these kept busy."""
    process_seconds = sum(row.wall_seconds * row.processes for row in rows)
    return max(sum(row.cpu_seconds for row in rows) / process_seconds, _LEAST_BUSY)
