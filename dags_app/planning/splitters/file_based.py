"""FileBased: N files of one location group to a job; lumi and run lists are applied inside the files (docs/splitting.md).

With a ``LumiList`` every job carries the wanted lumis of its files as its mask. With run lists alone a job has a mask only
when they cut inside one of its files: then, and not otherwise, the job would read what nobody wants. Its events are those
expected in the wanted lumis. A lumi in files of two jobs is read in two parts, each file's share by the one job that has the
file (ADR 0030).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dags_app.payload.contract.documents import InputFile
from dags_app.planning import lumis
from dags_app.planning.sites import SiteChoice
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputFileSpec, JobSpec, LumiRanges, PlanItem, WorkflowSpec
from dags_app.planning.wanted import NO_WANTED_LUMI, WantedLumis, wanted_share
from wms2.errors import PlanningRefused


class _Group:
    """Files of one location group that wait for their job to become full."""

    __slots__ = ("cut", "events", "files", "last_lfn", "lumis", "sites", "wanted")

    def __init__(self, sites: frozenset[str]) -> None:
        self.sites = sites
        self.last_lfn = ""
        self.files: list[InputFile] = []
        self.events = 0
        self.lumis = 0
        self.wanted: list[LumiRanges] = []
        self.cut = False


class FileBasedSplitter:
    """Files of a group in order of their names, ``files_per_job`` at a time. Whole files only: ``left`` must be the file."""

    def __init__(self, workflow: WorkflowSpec) -> None:
        if workflow.input is None:
            raise PlanningRefused("FileBased needs an input dataset")
        if workflow.splitting.files_per_job < 1:
            raise PlanningRefused(f"FilesPerJob must be at least 1, not {workflow.splitting.files_per_job}")
        self._files_per_job = workflow.splitting.files_per_job
        self._with_parents = workflow.input.include_parents
        self._wanted = WantedLumis(workflow.input)
        self._choice = SiteChoice(workflow)

    def split(self, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
        """Jobs as their files become complete; the last, shorter jobs of all groups at the end.

        Raises:
            ValueError: the LFNs of a location group do not ascend (a file listed twice included).
            PlanningRefused: part of a file is already planned, so it cannot be taken whole.
        """
        groups: dict[frozenset[str], _Group] = {}
        places: dict[frozenset[str], _Group | str] = {}
        everything, with_parents, files_per_job = self._wanted.everything, self._with_parents, self._files_per_job
        for file in files:
            place = places.get(file.locations)
            if place is None:
                place = places[file.locations] = self._place(file.locations, groups)
            if isinstance(place, str):
                yield ExcludedFile(file.lfn, place)
                continue
            expected = file.events
            if not everything:
                wanted = self._wanted.of(file)
                if not wanted:
                    yield ExcludedFile(file.lfn, NO_WANTED_LUMI, ExclusionKind.UNWANTED)
                    continue
                place.wanted.append(wanted)
                place.cut = place.cut or wanted != file.lumis
                expected = wanted_share(file.events, file.lumis, wanted)
            if file.left is not None:
                _check_whole(file)
            lfn, events, held = file.lfn, file.events, place.files
            if lfn <= place.last_lfn:
                raise ValueError(f"files must be in ascending order of their names: {lfn} after {place.last_lfn}")
            place.last_lfn = lfn
            place.events += expected
            place.lumis += lumis.count(file.lumis)
            held.append(InputFile(lfn, file.size_bytes, events, None, None, file.parents if with_parents else ()))
            if len(held) == files_per_job:
                yield self._close(place)
        for group in groups.values():
            if group.files:
                yield self._close(group)

    def _place(self, locations: frozenset[str], groups: dict[frozenset[str], _Group]) -> _Group | str:
        """The group of files at these locations, or why they cannot be read."""
        problem = self._choice.problem(locations)
        if problem is not None:
            return problem
        return groups.setdefault(self._choice.group(locations), _Group(self._choice.sites(locations)))

    def _close(self, group: _Group) -> JobSpec:
        mask = None
        if self._wanted.has_lumi_list or group.cut:
            mask = lumis.union(*group.wanted) if len(group.wanted) > 1 else group.wanted[0]
        job = JobSpec(group.events, group.sites, None, tuple(group.files), mask, file_lumis=group.lumis)
        group.files.clear()
        group.wanted.clear()
        group.events, group.lumis, group.cut = 0, 0, False
        return job


def _check_whole(file: InputFileSpec) -> None:
    if file.left != ((0, max(file.events - 1, 0)),):
        raise PlanningRefused(
            f"FileBased takes whole files, but of {file.lfn} only the events {file.left} are left to be planned"
        )
