"""Did a step do exactly its work? Pure: compares what was asked with what the framework job report says.

cmsRun ends with 0 after skipping a file or reading nothing; here both are failures (docs/design/model.md, Exit codes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..contract import codes
from ..contract.codes import PayloadError
from ..contract.documents import InputFile, UnitJob
from ..contract.lumis import LumiSet, describe, lumi_set
from ..contract.reports import Processed, ReadFile
from .fjr import FrameworkReport, InputFileReport
from .gathering import GatheredFile


def processed_by(reports: Sequence[FrameworkReport], job: UnitJob) -> Processed:
    """What the first step of a job processed, by the reports of all its processes.

    Of a file that the job was given a part of, from its first event. Generation has no input file: its events are cmsRun's own
    count (before any filter), its lumis those of the outputs.
    """
    if any(report.primary_inputs for report in reports):
        starts = {file.lfn: file.first_event for file in job.files}
        return _read([(file, file.lfn) for report in reports for file in report.primary_inputs], starts)
    lumis = {lumi for report in reports for file in report.outputs for lumi in lumi_set(file.lumis)}
    return Processed(sum(_generated(report) for report in reports), lumis, ())


def _generated(report: FrameworkReport) -> int:
    counted = report.metric("ProcessingSummary", "NumberEvents")
    return int(counted) if counted is not None else max((file.events for file in report.outputs), default=0)


def _read(inputs: Sequence[tuple[InputFileReport, str]], starts: Mapping[str, int | None]) -> Processed:
    """Input files by their LFNs; of one that several processes read a part of, the parts together."""
    events: dict[str, int] = {}
    for file, lfn in inputs:
        events[lfn] = events.get(lfn, 0) + file.events_read
    files = tuple(ReadFile(lfn, number, starts.get(lfn), _last(starts.get(lfn), number)) for lfn, number in events.items())
    return Processed(sum(events.values()), {lumi for file, _ in inputs for lumi in lumi_set(file.lumis)}, files)


def _last(first_event: int | None, events: int) -> int | None:
    return None if first_event is None or events == 0 else first_event + events - 1


def read_gathered(reports: Sequence[FrameworkReport], gathered: Sequence[GatheredFile]) -> Processed:
    """What a step read of files of an earlier one. cmsRun opened them where they lie; they go by their LFNs here."""
    lfns = {file.url.rpartition("file:")[2]: file.lfn for file in gathered}
    starts = {file.lfn: file.part.first_event for file in gathered if file.part is not None}
    inputs = [file for report in reports for file in report.primary_inputs]
    return _read([(file, lfns.get(file.pfn.rpartition("file:")[2], file.lfn or file.pfn)) for file in inputs], starts)


def check_gathered(gathered: Sequence[GatheredFile], done: Processed, step: str) -> None:
    """Refuse a step that did not read each file of an earlier one, or its part of one, or read another one."""
    _same_files(step, {file.lfn for file in gathered}, {file.lfn for file in done.files})
    wanted = {file.lfn: file for file in gathered}
    for file in done.files:
        if file.lfn not in wanted:
            raise _differs(step, f"opened {file.lfn}, which it was not given")
        part, held = wanted[file.lfn].part, wanted[file.lfn].events
        given = held if part is None else part.events
        if given is not None and file.events != given:
            whose = "it holds" if part is None else "its share is"
            raise _differs(step, f"read {file.events} events of {file.lfn}, {whose} {given}")
    _check_gathered_lumis(gathered, done, step)


def _check_gathered_lumis(gathered: Sequence[GatheredFile], done: Processed, step: str) -> None:
    """Which lumis a range of events lies in only cmsRun knows; otherwise they are known."""
    lumis: LumiSet = set()
    for file in gathered:
        lumis |= lumi_set(file.lumis) if file.part is None or file.part.lumis is None else file.part.lumis
    is_range = any(file.part is not None and file.part.first_event is not None for file in gathered)
    _same_lumis(step, lumis & done.lumis if is_range else lumis, done.lumis)


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
        return
    # a lumi may lie in several files, so its number alone does not show that all of it was read
    _same_files(step, {file.lfn for file in job.files}, {file.lfn for file in done.files})
    if job.mask is not None:
        _same_lumis(step, job.mask_lumis, done.lumis)
    else:
        _same_events(step, sum(_events_of(file) for file in job.files), done.events)


def _events_of(file: InputFile) -> int:
    end = file.events if file.last_event is None else file.last_event + 1
    return end - (file.first_event or 0)


def _differs(step: str, how: str) -> PayloadError:
    return PayloadError(codes.PROCESSED_DIFFERS, f"step {step} {how}")


def _same_events(step: str, wanted: int, done: int) -> None:
    if wanted != done:
        raise _differs(step, f"processed {done} events, it was given {wanted}")


def _same_lumis(step: str, wanted: LumiSet, done: LumiSet) -> None:
    missing, extra = wanted - done, done - wanted
    if missing or extra:
        parts = [f"missing {describe(missing)}" if missing else "", f"not asked for {describe(extra)}" if extra else ""]
        raise _differs(step, f"processed other lumis: {'; '.join(filter(None, parts))}")


def _same_files(step: str, wanted: set[str], done: set[str]) -> None:
    missing = sorted(wanted - done)
    if missing:
        raise _differs(step, f"did not open {len(missing)} of its files: {', '.join(missing[:5])}")
