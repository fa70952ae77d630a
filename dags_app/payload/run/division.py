"""What each of several cmsRun does of a step's work, side by side in a slot. Pure; owns that every event is in exactly one part.

Lumis stay whole wherever that is possible. What cannot be divided without losing something runs as one process, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..contract.documents import DQMIO, Generate, InputFile, JobDocument, Step, UnitJob
from ..contract.lumis import LumiCounts, compact, lumi_set
from ..contract.step_profile import StepRun
from .gathering import GatheredFile, in_order
from .shares import Held, Part, parts_of
from .slot import Granted


class Work(NamedTuple):
    """What a cmsRun does: what ``unit_job`` says, or read ``sources``, of each its ``part``, as files of an earlier step."""

    unit_job: UnitJob
    sources: tuple[GatheredFile, ...] = ()


class Division(NamedTuple):
    """The work of each process; ``undivided`` is why there are fewer than asked for, empty when there are as many."""

    works: tuple[Work, ...]
    undivided: str = ""


def divide(job: JobDocument, step: Step, work: Work, run: StepRun, granted: Granted) -> Division:
    """``work`` of ``step`` for as many processes as ``run`` says, the slot has room for, and the work can be divided into."""
    wanted, why = _fitting(run, granted)
    if wanted == 1:
        return Division((work,), why)
    whole = _why_whole(job, step)
    if whole:
        return Division((work,), whole)
    works, what = _parts(work, wanted)
    if len(works) < wanted:
        why = f"{len(works)} of {run.processes} processes: {what}"
    return Division(tuple(works), why)


def _fitting(run: StepRun, granted: Granted) -> tuple[int, str]:
    """How many processes the slot has room for, and why not all; one always has."""
    fit, why = run.processes, ""
    if granted.cores is not None and fit > granted.cores:
        fit, why = max(1, granted.cores), f"the slot has {granted.cores} cores"
    if granted.memory_mb is not None and fit * run.rss_mb > granted.memory_mb:
        fit, why = max(1, granted.memory_mb // run.rss_mb), f"the slot has {granted.memory_mb} MB, one takes {run.rss_mb} MB"
    return fit, f"{fit} of {run.processes} processes: {why}" if fit < run.processes else ""


def _why_whole(job: JobDocument, step: Step) -> str:
    """Why a step runs as one process whatever there is to do; empty when nothing speaks against several."""
    if step.pileup and step.deterministic_pileup:
        return "deterministic pileup is mixed in one sequence"
    if not step.output_modules:
        return "the step has no output module whose files could be merged"
    if any((each.step, each.module, each.merge) == (step.input_step, step.input_module, DQMIO) for each in job.outputs):
        return "the step reads DQMIO, which is harvested as a whole"
    return ""


def _parts(work: Work, wanted: int) -> tuple[list[Work], str]:
    """Up to ``wanted`` parts, and what there would have to be more of."""
    job = work.unit_job
    if work.sources:
        return [work._replace(sources=each) for each in _of_sources(work.sources, wanted)], "too few events or lumis to read"
    if job.generate is not None:
        parts = _of_generation(job.generate, wanted)
        return [Work(job._replace(events=part.events, generate=part)) for part in parts], "too few events to generate"
    if job.mask is not None:
        if any(file.first_event is not None for file in job.files):
            return [work], "a range of events under a mask"
        lumis = sorted(job.mask_lumis)
        masks = [compact(lumis[first : last + 1]) for first, last in _bounds(len(lumis), wanted)]
        spans = [tuple((int(run), a, b) for run, pairs in mask.items() for a, b in pairs) for mask in masks]
        return [Work(job._replace(mask=each)) for each in spans], "too few lumis in the mask"
    if len(job.files) == 1 and (file := job.files[0]).first_event is not None and file.events:
        start, last = file.first_event, file.events - 1 if file.last_event is None else file.last_event
        bounds = _bounds(last - start + 1, wanted)
        ranges = [file._replace(first_event=start + a, last_event=start + b) for a, b in bounds]
        return [Work(job._replace(files=(each,))) for each in ranges], "too few events to read"
    # inside a whole file its lumis are unknown: one without events would be lost where the file is cut
    return [Work(job._replace(files=files)) for files in _of_files(job.files, wanted)], "whole input files are not cut"


def _of_generation(work: Generate, wanted: int) -> list[Generate]:
    """Whole lumis; where there are fewer than processes, each lumi goes to several. No part goes over the end of a lumi."""
    lumis = work.last_lumi - work.first_lumi + 1
    if lumis >= wanted:
        return [_generated(work, first, last + 1) for first, last in _bounds(lumis, wanted)]
    found = []
    for lumi in range(lumis):
        one = _generated(work, lumi, lumi + 1)
        share = wanted // lumis + (lumi < wanted % lumis)
        for first, last in _bounds(one.events, share):
            found.append(one._replace(first_event=one.first_event + first, last_event=one.first_event + last))
    return found


def _generated(work: Generate, first: int, end: int) -> Generate:
    """The lumis from ``first`` up to ``end``, counted from 0."""
    start = work.first_event + first * work.events_per_lumi
    stop = min(work.last_event, work.first_event + end * work.events_per_lumi - 1)
    return work._replace(
        first_event=start, last_event=stop, first_lumi=work.first_lumi + first, last_lumi=work.first_lumi + end - 1
    )


def _of_files(files: Sequence[InputFile], wanted: int) -> list[tuple[InputFile, ...]]:
    """Whole files in order, about as many events to each."""
    numbered = [Held(0, {0: {number: file.events for number, file in enumerate(files)}})]
    parts = [parts_of(numbered, part, wanted, by_lumi=True)[0] for part in range(wanted)]
    places = [sorted(number for _, number in part.lumis or ()) for part in parts if part is not None and not part.is_empty]
    return [tuple(files[number] for number in some) for some in places]


def _of_sources(files: tuple[GatheredFile, ...], wanted: int) -> list[tuple[GatheredFile, ...]]:
    """As many files as processes: one each. Else by events, unless a lumi could be lost where a file is cut; then by lumis.

    Inside a range of events that may hold such a lumi nothing is cut.
    """
    if len(files) == wanted and all(file.part is None for file in files):
        return [(file,) for file in files]
    held = [_held(file) for file in files]
    ranges = any(file.part is not None and file.part.first_event is not None for file in files)
    empty = any(not events for file in files for lumis in file.lumis.values() for events in lumis.values())
    if ranges and empty:
        return [files]
    by_lumi = not ranges and (empty or any(file.part is not None for file in files))
    found = []
    for number in range(wanted):
        parts = parts_of(held, number, wanted, by_lumi=by_lumi)
        mine = [file._replace(part=_inside(file, part)) for file, part in zip(files, parts) if part is None or not part.is_empty]
        found += [in_order(mine)] if mine else []
    return found


def _held(file: GatheredFile) -> Held:
    """What there is to read of a file; which lumis a range of events lies in is unknown."""
    part = file.part
    if part is None:
        return Held(file.events, file.lumis)
    if part.lumis is None:
        return Held(part.events or 0, {})
    counts: LumiCounts = {}
    for run, lumi in part.lumis:
        counts.setdefault(run, {})[lumi] = file.lumis[run][lumi]
    return Held(part.events or 0, counts)


def _inside(file: GatheredFile, part: Part | None) -> Part | None:
    """A part of what there was to read of ``file``, as a part of the file; None when that is all of it."""
    if part is None:
        return file.part
    if part.lumis is not None:
        return None if file.part is None and part.lumis == lumi_set(file.lumis) else part
    if file.part is None:
        return None if part.events == file.events else part
    return Part(part.events, (file.part.first_event or 0) + (part.first_event or 0))


def _bounds(count: int, parts: int) -> list[tuple[int, int]]:
    """(first, last) of up to ``parts`` even parts of ``count``, none empty."""
    parts = min(parts, count)
    return [(part * count // parts, (part + 1) * count // parts - 1) for part in range(parts)]
