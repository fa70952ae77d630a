"""Did a step do exactly its work? Pure: compares what was asked with what the framework job report says.

cmsRun ends with 0 after skipping a file or reading nothing; here both are failures (``model.md`` section 3, "Exit codes").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import codes
from .codes import PayloadError
from .documents import UnitJob
from .fjr import FrameworkReport, OutputFileReport
from .gathering import GatheredFile
from .lumis import LumiSet, describe, lumi_set


@dataclass(frozen=True)
class ReadFile:
    """An input file with the number of events read; ``first_event`` (from 0) when the job was given only a part of it."""

    lfn: str
    events: int
    first_event: int | None = None

    @property
    def last_event(self) -> int | None:
        """Last event read of a part; None for a whole file, and for a part without events."""
        return None if self.first_event is None or self.events == 0 else self.first_event + self.events - 1


@dataclass(frozen=True)
class Processed:
    """What a step really read or generated. ``files`` is empty for generation."""

    events: int
    lumis: LumiSet
    files: tuple[ReadFile, ...]


def processed_by(report: FrameworkReport) -> Processed:
    """What the first step of a job processed.

    Generation has no input file: its events are cmsRun's own count (before any filter), its lumis those of the outputs.
    """
    inputs = report.primary_inputs
    if inputs:
        lumis = {lumi for file in inputs for lumi in lumi_set(file.lumis)}
        return Processed(sum(f.events_read for f in inputs), lumis, tuple(ReadFile(f.lfn, f.events_read) for f in inputs))
    counted = report.metric("ProcessingSummary", "NumberEvents")
    events = int(counted) if counted is not None else max((file.events for file in report.outputs), default=0)
    return Processed(events, {lumi for file in report.outputs for lumi in lumi_set(file.lumis)}, ())


def with_ranges(done: Processed, job: UnitJob) -> Processed:
    """``done`` with the first event of each file that the job was given a part of."""
    starts = {file.lfn: file.first_event for file in job.files}
    return replace(done, files=tuple(replace(file, first_event=starts.get(file.lfn)) for file in done.files))


def read_gathered(report: FrameworkReport, gathered: Sequence[GatheredFile]) -> Processed:
    """What the first step of a later task read. cmsRun opened paths; the files go by their LFNs here."""
    lfns = {str(file.path.resolve()): file.lfn for file in gathered}
    inputs = report.primary_inputs
    files = tuple(ReadFile(lfns.get(f.pfn.rpartition("file:")[2], f.lfn or f.pfn), f.events_read) for f in inputs)
    return Processed(sum(f.events for f in files), {lumi for f in inputs for lumi in lumi_set(f.lumis)}, files)


def check_gathered(gathered: Sequence[GatheredFile], done: Processed, step: str) -> None:
    """Refuse a first step of a later task that did not read each file whole, or read another one."""
    _same_files(step, {file.lfn for file in gathered}, {file.lfn for file in done.files})
    wanted = {file.lfn: file.events for file in gathered}
    for file in done.files:
        if file.lfn not in wanted:
            raise PayloadError(codes.PROCESSED_DIFFERS, f"step {step} opened {file.lfn}, which it was not given")
        if file.events != wanted[file.lfn]:
            raise PayloadError(
                codes.PROCESSED_DIFFERS, f"step {step} read {file.events} events of {file.lfn}, it holds {wanted[file.lfn]}"
            )
    _same_lumis(step, {lumi for file in gathered for lumi in lumi_set(file.lumis)}, done.lumis)


def check_not_skipped(report: FrameworkReport, step: str) -> None:
    """Refuse a report with skipped input files."""
    if report.skipped_files:
        raise PayloadError(
            codes.INPUT_SKIPPED, f"step {step} skipped {len(report.skipped_files)} files: {', '.join(report.skipped_files)}"
        )


def check_first_step(job: UnitJob, done: Processed, step: str) -> None:
    """Refuse a first step that did not process exactly what the job was given."""
    if job.generate is not None:
        _same_events(step, job.generate.events, done.events)
        _same_lumis(step, job.generate.lumis, done.lumis)
    elif job.mask is not None:
        # a lumi may lie in several files, so its number alone does not show that all of it was read
        _same_files(step, {file.lfn for file in job.files}, {file.lfn for file in done.files})
        _same_lumis(step, job.mask_lumis, done.lumis)
    else:
        _same_files(step, {file.lfn for file in job.files}, {file.lfn for file in done.files})
        _same_events(step, sum(_events_of(file.first_event, file.last_event, file.events) for file in job.files), done.events)


def check_next_step(source: OutputFileReport, done: Processed, step: str) -> None:
    """Refuse a later step that did not read exactly the file of the step before it."""
    _same_events(step, source.events, done.events)
    _same_lumis(step, lumi_set(source.lumis), done.lumis)


def _events_of(first: int | None, last: int | None, events: int) -> int:
    if last is None:
        return events - (first or 0)
    return last - (first or 0) + 1


def _same_events(step: str, wanted: int, done: int) -> None:
    if wanted != done:
        raise PayloadError(codes.PROCESSED_DIFFERS, f"step {step} processed {done} events, it was given {wanted}")


def _same_lumis(step: str, wanted: LumiSet, done: LumiSet) -> None:
    missing, extra = wanted - done, done - wanted
    if missing or extra:
        parts = [f"missing {describe(missing)}" if missing else "", f"not asked for {describe(extra)}" if extra else ""]
        raise PayloadError(codes.PROCESSED_DIFFERS, f"step {step} processed other lumis: {'; '.join(p for p in parts if p)}")


def _same_files(step: str, wanted: set[str], done: set[str]) -> None:
    missing = sorted(wanted - done)
    if missing:
        raise PayloadError(
            codes.PROCESSED_DIFFERS, f"step {step} did not open {len(missing)} of its files: {', '.join(missing[:5])}"
        )
