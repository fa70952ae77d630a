"""EventBased (docs/splitting.md): with input, ranges of events inside each file; a job never holds two files.

Ranges count from 0 and include both ends. A file without events still gets one job, so that its lumis are kept; so does one
that is known to have lumis without events: they lie in no range. An event
range cannot be combined with a lumi selection (cmsRun counts skipped events after selecting lumis), so a ``LumiList`` is
refused by name, and run lists only choose among whole files.

Without input, numbers for generated events and lumis. Event numbers are 64 bit and never start again: lumis and events both go on
without gap from wherever the ledger says. EventsPerJob is at most the total, EventsPerLumi at most EventsPerJob, then
EventsPerJob is rounded to whole lumis. These follow from the whole request, not from what is left, so every round cuts alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dags_app.payload.contract.documents import Generate, InputFile
from dags_app.planning import lumis
from dags_app.planning.lumis import round_to_lumis
from dags_app.planning.selection import NO_WANTED_LUMI, SiteChoice, WantedLumis
from dags_app.planning.specs import (
    ExcludedFile,
    ExclusionKind,
    GenerationLeft,
    GenerationSpec,
    InputFileSpec,
    InputSpec,
    JobSpec,
    PlanItem,
    WorkflowSpec,
)
from wms2.errors import PlanningRefused

#: Largest event number that the ledger (int8) and CMSSW (uint64) can both hold.
MAX_EVENT = 2**63 - 2
#: Largest lumi number: CMSSW counts lumis in 32 bits.
MAX_LUMI = 2**32 - 1

#: run, first, last, events of each; see ``lumis.odd``
Odd = tuple[int, int, int, int]


def split_by_events(workflow: WorkflowSpec, asked: InputSpec, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
    """``events_per_job`` events of one file to a job, file by file in the order given; the last job of each range is shorter.

    Raises:
        PlanningRefused: the request lists lumis, or wants one part of a file's runs and not another.
    """
    wanted, choice = WantedLumis(asked), SiteChoice(workflow)
    if wanted.has_lumi_list:
        raise PlanningRefused(
            "EventBased cannot apply a LumiList: an event range and a lumi selection exclude each other; "
            "use FileBased, LumiBased or EventAwareLumiBased"
        )
    events_per_job = round_to_lumis(workflow.splitting.events_per_job, workflow.splitting.events_per_lumi)
    places: dict[frozenset[str], frozenset[str] | str] = {}
    has_run_lists, with_parents = wanted.has_run_lists, asked.include_parents
    for file in files:
        sites = places.get(file.locations)
        if sites is None:
            sites = places[file.locations] = choice.problem(file.locations) or choice.sites(file.locations)
        if isinstance(sites, str):
            yield ExcludedFile(file.lfn, sites)
            continue
        if has_run_lists and not _is_wanted(file, wanted):
            yield ExcludedFile(file.lfn, NO_WANTED_LUMI, ExclusionKind.UNWANTED)
            continue
        parents = file.parents if with_parents else ()
        if file.events < 1:
            yield JobSpec(0, sites, None, (InputFile(file.lfn, file.size_bytes, 0, 0, None, parents),))
            continue
        empty = [each for each in file.odd_lumis if not each[3]]
        if empty and file.is_whole:
            yield _whole(workflow, file, sites, parents, empty)
            continue
        for first, last in file.left if file.left is not None else ((0, file.events - 1),):
            yield from _cut(file, first, last, events_per_job, sites, parents)


def _whole(
    workflow: WorkflowSpec, file: InputFileSpec, sites: frozenset[str], parents: tuple[str, ...], empty: list[Odd]
) -> PlanItem:
    """A file with lumis that have no event: no range holds these, so one job reads all of it, if that does not take too long.

    Without a range even where it is small: inside a range of events, processes side by side would cut it again.
    """
    seconds = file.events * workflow.resources.time_per_event_seconds
    limit = workflow.splitting.job_time_limit_seconds
    if seconds <= limit or file.events <= workflow.splitting.events_per_job:
        part = InputFile(file.lfn, file.size_bytes, file.events, None, None, parents)
        return JobSpec(file.events, sites, None, (part,), file_lumis=lumis.count(file.lumis))
    named = ", ".join(f"{run}:{first}" + (f"-{last}" if last > first else "") for run, first, last, _ in empty[:5])
    return ExcludedFile(
        file.lfn,
        f"its lumis {named}{' …' if empty[5:] else ''} have no events, so that ranges of events lose them, and whole it would "
        f"run {seconds / 3600:.1f} h, longer than the job time limit of {limit / 3600:g} h; use LumiBased or EventAwareLumiBased",
    )


def _cut(
    file: InputFileSpec, first: int, last: int, step: int, sites: frozenset[str], parents: tuple[str, ...]
) -> Iterator[JobSpec]:
    if not 0 <= first <= last < file.events:
        raise ValueError(f"events {first}-{last} are not events of {file.lfn}, which has {file.events}")
    lfn, size, events, held = file.lfn, file.size_bytes, file.events, lumis.count(file.lumis)
    for begin in range(first, last + 1, step):
        last_of_job = min(begin + step - 1, last)
        part, wanted = InputFile(lfn, size, events, begin, last_of_job, parents), last_of_job - begin + 1
        yield JobSpec(wanted, sites, None, (part,), file_lumis=-(-held * wanted // events))


def _is_wanted(file: InputFileSpec, lists: WantedLumis) -> bool:
    wanted = lists.among(file.lumis)
    if wanted and wanted != file.lumis:
        raise PlanningRefused(
            f"EventBased cannot apply the run lists inside a file: of {file.lfn} they want the runs {sorted(wanted)} "
            f"and not {sorted(file.lumis.keys() - wanted.keys())}; use FileBased, LumiBased or EventAwareLumiBased"
        )
    return bool(wanted)


def split_generation(workflow: WorkflowSpec, spec: GenerationSpec, left: GenerationLeft | None) -> Iterator[JobSpec]:
    """Jobs of whole lumis in order of their numbers, of all or what is left of a generation.

    Raises:
        PlanningRefused: no site is left, or the last event or lumi would be too large to be a number of its kind.
    """
    left = left or GenerationLeft(spec.first_event, spec.first_lumi, spec.events)
    sites = SiteChoice(workflow).for_generation()
    per_job = min(spec.events_per_job, spec.events)
    per_lumi = min(spec.events_per_lumi, per_job)
    per_job = round_to_lumis(per_job, per_lumi)
    _check_end(left, per_job, per_lumi)
    event, lumi = left.first_event, left.first_lumi
    end = event + left.events
    while event < end:
        events = min(per_job, end - event)
        many = -(-events // per_lumi)
        yield JobSpec(events, sites, Generate(spec.run, event, event + events - 1, lumi, lumi + many - 1, per_lumi))
        event += events
        lumi += many


def _check_end(left: GenerationLeft, per_job: int, per_lumi: int) -> None:
    full_jobs, rest = divmod(left.events, per_job)
    many = full_jobs * (per_job // per_lumi) + -(-rest // per_lumi)
    if left.first_event + left.events - 1 > MAX_EVENT:
        raise PlanningRefused(
            f"event numbers would pass {MAX_EVENT}; FirstEvent is {left.first_event}, {left.events} events are left"
        )
    if left.first_lumi + many - 1 > MAX_LUMI:
        raise PlanningRefused(
            f"lumi numbers would pass {MAX_LUMI}: {many} lumis from {left.first_lumi} on are needed; "
            "raise EventsPerLumi or lower FirstLumi"
        )
