"""EventBased with input: ranges of events inside each file; a job never holds two files (docs/splitting.md).

Ranges count from 0 and include both ends. A file without events still gets one job, so that its lumis are kept. An event
range cannot be combined with a lumi selection (cmsRun counts skipped events after selecting lumis), so a ``LumiList`` is
refused by name, and run lists only choose among whole files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dags_app.payload.contract.documents import InputFile
from dags_app.planning import lumis
from dags_app.planning.sites import SiteChoice
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputFileSpec, JobSpec, PlanItem, WorkflowSpec
from dags_app.planning.splitters.rounding import round_to_lumis
from dags_app.planning.wanted import NO_WANTED_LUMI, WantedLumis
from wms2.errors import PlanningRefused


class EventBasedSplitter:
    """``events_per_job`` events of one file to a job, the last job of each range shorter."""

    def __init__(self, workflow: WorkflowSpec) -> None:
        if workflow.input is None:
            raise PlanningRefused("EventBased with input needs an input dataset")
        splitting = workflow.splitting
        if splitting.events_per_job < 1:
            raise PlanningRefused(f"EventsPerJob must be at least 1, not {splitting.events_per_job}")
        self._wanted = WantedLumis(workflow.input)
        if self._wanted.has_lumi_list:
            raise PlanningRefused(
                "EventBased cannot apply a LumiList: an event range and a lumi selection exclude each other; "
                "use FileBased, LumiBased or EventAwareLumiBased"
            )
        self._with_parents = workflow.input.include_parents
        self._choice = SiteChoice(workflow)
        self._events_per_job = splitting.events_per_job
        if splitting.events_per_lumi > 0:
            self._events_per_job = round_to_lumis(splitting.events_per_job, splitting.events_per_lumi)

    def split(self, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
        """Jobs file by file, in the order given.

        Raises:
            PlanningRefused: the run lists want one part of a file and not another.
        """
        places: dict[frozenset[str], frozenset[str] | str] = {}
        has_run_lists = self._wanted.has_run_lists
        for file in files:
            sites = places.get(file.locations)
            if sites is None:
                sites = self._choice.problem(file.locations) or self._choice.sites(file.locations)
                places[file.locations] = sites
            if isinstance(sites, str):
                yield ExcludedFile(file.lfn, sites)
                continue
            if has_run_lists and not self._is_wanted(file):
                yield ExcludedFile(file.lfn, NO_WANTED_LUMI, ExclusionKind.UNWANTED)
                continue
            parents = file.parents if self._with_parents else ()
            if file.events < 1:
                yield JobSpec(0, sites, None, (InputFile(file.lfn, file.size_bytes, 0, 0, None, parents),))
                continue
            for first, last in file.left if file.left is not None else ((0, file.events - 1),):
                yield from self._cut(file, first, last, sites, parents)

    def _cut(
        self, file: InputFileSpec, first: int, last: int, sites: frozenset[str], parents: tuple[str, ...]
    ) -> Iterator[JobSpec]:
        if not 0 <= first <= last < file.events:
            raise ValueError(f"events {first}-{last} are not events of {file.lfn}, which has {file.events}")
        lfn, size, events, step = file.lfn, file.size_bytes, file.events, self._events_per_job
        held = lumis.count(file.lumis)
        for begin in range(first, last + 1, step):
            end = min(begin + step - 1, last)
            part = InputFile(lfn, size, events, begin, end, parents)
            yield JobSpec(end - begin + 1, sites, None, (part,), file_lumis=-(-held * (end - begin + 1) // events))

    def _is_wanted(self, file: InputFileSpec) -> bool:
        wanted = self._wanted.of(file)
        if wanted and wanted != file.lumis:
            raise PlanningRefused(
                f"EventBased cannot apply the run lists inside a file: of {file.lfn} they want the runs {sorted(wanted)} "
                f"and not {sorted(file.lumis.keys() - wanted.keys())}; use FileBased, LumiBased or EventAwareLumiBased"
            )
        return bool(wanted)
