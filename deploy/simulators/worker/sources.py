"""The events a source gives: made up by a generating source, selected from files by a reading one. Owns that selection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .configuration import Plan, Source
from .errors import WRONG_GUID, CmsException
from .rootfiles import EventTable, concatenate, read_events, read_guid, stem
from .storage import existing, local_copy

#: A job of the simulation does not go through a whole pileup sample.
_PILEUP_FILES_READ = 5


@dataclass(frozen=True, slots=True)
class InputRead:
    """What was read of one input file."""

    name: str
    pfn: str
    path: Path  # of its bytes here, as long as this process runs
    events: int
    lumis: tuple[tuple[int, int], ...]
    guid: str
    mixed_by: str = ""  # label of the mixing module; empty: the source itself read it

    @property
    def lfn(self) -> str:
        """The name in the catalogue; empty for a plain file."""
        return self.name if self.name.startswith("/store/") else ""


@dataclass(frozen=True, slots=True)
class Given:
    """Everything a source gave: events in order, all lumis (also empty ones), and by file."""

    events: EventTable
    lumis: tuple[tuple[int, int], ...]
    inputs: tuple[InputRead, ...] = ()
    skipped: tuple[str, ...] = ()


def read_source(plan: Plan) -> Given:
    """The events of the plan's source, within its limits."""
    return _read_files(plan) if plan.source.reads_files else _generate(plan)


def read_pileup(plan: Plan) -> tuple[InputRead, ...]:
    """Every file of the mixing modules must be there; the first few, in the order given, are read."""
    found = []
    for module in plan.mixing:
        pfns = [(name, existing(name)) for name in module.file_names]
        for name, pfn in pfns[:_PILEUP_FILES_READ]:
            events, _ = read_events(path := local_copy(pfn))
            guid = _identified(pfn, path, enforced=module.enforces_guid)
            found.append(InputRead(name, pfn, path, len(events), (), guid, module.label))
    return tuple(found)


def _generate(plan: Plan) -> Given:
    """Consecutive event numbers; a new lumi after every ``events_per_lumi``. All in one run."""
    source, count = plan.source, max(0, plan.max_events)
    position = np.arange(count, dtype="u8")
    event = position + np.uint64(source.first_event + source.skip_events)  # LHE files are skipped into, the rest begins at once
    per_lumi = source.events_per_lumi or max(1, count)
    lumi = (position // np.uint64(per_lumi) + np.uint64(source.first_lumi)).astype("u4")
    run = np.full(count, source.first_run, "u4")
    lumis = tuple((source.first_run, int(number)) for number in sorted(set(lumi.tolist())))
    return Given(EventTable(run, lumi, event), lumis)


def _read_files(plan: Plan) -> Given:
    source = plan.source
    for name in source.secondary_files:
        pfn = existing(name)
        if source.enforces_guid:
            _identified(pfn, local_copy(pfn), enforced=True)
    to_skip, left = source.skip_events, plan.max_events
    tables: list[EventTable] = []
    inputs: list[InputRead] = []
    skipped: list[str] = []
    seen: dict[tuple[int, int], None] = {}
    for name in source.file_names:
        if left == 0:
            break
        try:
            pfn = existing(name)
            events, lumis = read_events(path := local_copy(pfn))
        except CmsException:
            if not source.skip_bad_files:
                raise
            skipped.append(name)
            continue
        guid = _identified(pfn, path, enforced=source.enforces_guid)
        if source.without_events:
            events = events.take(slice(0, 0))
        events, lumis = events.take(_wanted(source, events)), [lumi for lumi in lumis if _in_ranges(source, lumi)]
        before, to_skip = min(to_skip, len(events)), max(0, to_skip - len(events))
        part = events.take(slice(before, None if left < 0 else before + left))
        left = left if left < 0 else left - len(part)
        lumis = _read_lumis(lumis, part, skipped=before > 0, stopped=left == 0)
        inputs.append(InputRead(name, pfn, path, len(part), tuple(lumis), guid))
        tables.append(part)
        seen.update(dict.fromkeys(lumis))
    return Given(concatenate(tables), tuple(sorted(seen)), tuple(inputs), tuple(skipped))


def _identified(pfn: str, path: Path, *, enforced: bool) -> str:
    """The GUID inside a file; CmsException where it has to be that of its name. ``skipBadFiles`` skips none of these."""
    guid = read_guid(path)
    if enforced and stem(pfn) != guid:
        text = f"GUID {stem(pfn)} extracted from file name {pfn} is inconsistent with the GUID read from the file {guid}"
        raise CmsException(WRONG_GUID, "FileNameInconsistentWithGUID", text)
    return guid


def _read_lumis(lumis: list[tuple[int, int]], part: EventTable, *, skipped: bool, stopped: bool) -> list[tuple[int, int]]:
    """Of a file's lumis, in its order, those that cmsRun comes by: from the first event after ``skipEvents`` on, and no further
    than the event at which ``maxEvents`` is reached, so that lumis without events behind it are not read.
    """
    held = sorted(part.lumi_counts())
    if not held:
        return [] if skipped or stopped else lumis
    return [each for each in lumis if (not skipped or each >= held[0]) and (not stopped or each <= held[-1])]


def _wanted(source: Source, events: EventTable) -> npt.NDArray[np.bool_]:
    if not source.lumis:
        return np.ones(len(events), bool)
    position = (events.run.astype("u8") << np.uint64(32)) | events.lumi.astype("u8")
    wanted = np.zeros(len(events), bool)
    for run, lumi, last_run, last_lumi in source.lumis:
        wanted |= (position >= np.uint64(run << 32 | lumi)) & (position <= np.uint64(last_run << 32 | last_lumi))
    return wanted


def _in_ranges(source: Source, lumi: tuple[int, int]) -> bool:
    return not source.lumis or any((run, first) <= lumi <= (last_run, last) for run, first, last_run, last in source.lumis)
