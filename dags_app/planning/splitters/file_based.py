"""FileBased: N files of one location group to a job; lumi and run lists are applied inside the files (docs/splitting.md).

With a ``LumiList`` every job carries the wanted lumis of its files as its mask. With run lists alone a job has a mask only
when they cut inside one of its files: then, and not otherwise, the job would read what is not wanted. Its events are those
expected in the wanted lumis. A lumi in files of two jobs is read in two parts, each file's share by the one job that has the
file (ADR 0007).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dags_app.payload.contract.documents import InputFile
from dags_app.planning import lumis
from dags_app.planning.selection import NO_WANTED_LUMI, SiteChoice, WantedLumis, wanted_share
from dags_app.planning.specs import (
    ExcludedFile,
    ExclusionKind,
    InputFileSpec,
    InputSpec,
    JobSpec,
    LumiRanges,
    PlanItem,
    WorkflowSpec,
)
from wms2.errors import PlanningRefused


class _Group:
    """Files of one location group that wait for their job to become full."""

    __slots__ = ("cut", "events", "files", "last_lfn", "lumis", "sites", "wanted")

    def __init__(self, sites: frozenset[str]) -> None:
        self.sites = sites
        self.last_lfn = ""
        self._start()

    def _start(self) -> None:
        self.files: list[InputFile] = []
        self.events = 0
        self.lumis = 0
        self.wanted: list[LumiRanges] = []
        self.cut = False

    def close(self, masked: bool) -> JobSpec:
        """The job as it is; empties this one."""
        mask = lumis.union(*self.wanted) if masked or self.cut else None
        job = JobSpec(self.events, self.sites, None, tuple(self.files), mask, file_lumis=self.lumis)
        self._start()
        return job


def split_by_files(workflow: WorkflowSpec, asked: InputSpec, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
    """Files of a group in order of their names, ``files_per_job`` at a time; the last, shorter jobs of all groups at the end.

    Raises:
        ValueError: the LFNs of a location group do not ascend (a file listed twice included).
        PlanningRefused: part of a file is already planned, so it cannot be taken whole.
    """
    wanted, choice = WantedLumis(asked), SiteChoice(workflow)
    groups: dict[frozenset[str], _Group] = {}
    places: dict[frozenset[str], _Group | str] = {}
    everything, masked = wanted.everything, wanted.has_lumi_list
    with_parents, files_per_job = asked.include_parents, workflow.splitting.files_per_job
    for file in files:
        place = places.get(file.locations)
        if place is None:
            place = choice.problem(file.locations) or groups.setdefault(
                choice.group(file.locations), _Group(choice.sites(file.locations))
            )
            places[file.locations] = place
        if isinstance(place, str):
            yield ExcludedFile(file.lfn, place)
            continue
        expected = file.events
        if not everything:
            ranges = wanted.among(file.lumis)
            if not ranges:
                yield ExcludedFile(file.lfn, NO_WANTED_LUMI, ExclusionKind.UNWANTED)
                continue
            place.wanted.append(ranges)
            place.cut = place.cut or ranges != file.lumis
            expected = wanted_share(file.events, file.lumis, ranges)
        if not file.is_whole:
            raise PlanningRefused(
                f"FileBased takes whole files, but of {file.lfn} only the events {file.left} are left to be planned"
            )
        lfn, events, held = file.lfn, file.events, place.files
        if lfn <= place.last_lfn:
            raise ValueError(f"files must be in ascending order of their names: {lfn} after {place.last_lfn}")
        place.last_lfn = lfn
        place.events += expected
        place.lumis += lumis.count(file.lumis)
        held.append(InputFile(lfn, file.size_bytes, events, None, None, file.parents if with_parents else ()))
        if len(held) == files_per_job:
            yield place.close(masked)
    for group in groups.values():
        if group.files:
            yield group.close(masked)
