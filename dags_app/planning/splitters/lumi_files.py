"""The files of a lumi splitting, in order, and the lumis that several of them hold.

Owns which lumis are still to be dealt, in which order, and with which files. Everything is intervals: costs and memory go with
the number of intervals in the input, never with the number of lumis. How lumis become jobs is ``lumi_based.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from dags_app.payload.contract.documents import InputFile
from dags_app.planning import lumis
from dags_app.planning.selection import NO_WANTED_LUMI, SiteChoice, WantedLumis
from dags_app.planning.specs import ExcludedFile, ExclusionKind, InputFileSpec, InputSpec, LumiRanges
from wms2.errors import PlanningRefused

Group = frozenset[str]
#: run, first, last, holders
Piece = tuple[int, int, int, tuple["ReadableFile", ...]]

_BY_RUN_AND_LUMI = itemgetter(0, 1)

#: Reason for a file that a lumi splitting cannot see.
NO_LUMI = "the file has no lumis, so no splitting by lumis can take it; use FileBased or EventBased"


@dataclass(slots=True)
class ReadableFile:
    """A file that can be read, with the lumis of it that are to be dealt.

    Attributes:
        job_file: as jobs name it: whole, since the mask says what of it they read.
        group: files with the same answer may share a job (``SiteChoice.group``).
        todo: wanted lumis that are left, shared ones included.
        lumis: number of all its lumis, unwanted ones included, but not those that no job may take; ``events`` are theirs, and are
            taken to be spread evenly over them.
        position: in the order of all files.
    """

    job_file: InputFile
    group: Group
    todo: LumiRanges
    lumis: int
    position: int = 0
    events: int = -1
    _dealt: int = 0

    def __post_init__(self) -> None:
        if self.events < 0:
            self.events = self.job_file.events

    @property
    def lfn(self) -> str:
        """Its name."""
        return self.job_file.lfn

    def take(self, lumis: int) -> int:
        """Take the next lumis; their estimated events. Over all lumis of the file these add up to its events."""
        before = self._dealt
        self._dealt = before + lumis
        events = self.events
        return events * self._dealt // self.lumis - events * before // self.lumis


def collect(
    spec: InputSpec, choice: SiteChoice, files: Iterable[InputFileSpec], too_long: Collection[tuple[int, int]] = ()
) -> tuple[tuple[ReadableFile, ...], tuple[ExcludedFile, ...], dict[tuple[int, int], list[str]]]:
    """The files in the order in which they are dealt (lowest run, then its lumis, then name), those left out, by name, and of the
    lumis that are ``too_long`` for any job those that would be dealt, with the files that hold them.

    All at once, since any two may share a lumi; the answer does not depend on the order given.

    Raises:
        ValueError: a file is given twice.
        PlanningRefused: a file is left in part by events, which a lumi splitting cannot take.
    """
    wanted, with_parents = WantedLumis(spec), spec.include_parents
    problems: dict[frozenset[str], str | None] = {}  # by locations
    held: list[tuple[tuple[int, tuple[lumis.Interval, ...], str], ReadableFile]] = []
    excluded: list[ExcludedFile] = []
    seen: set[str] = set()
    refused: dict[tuple[int, int], list[str]] = {}
    unplannable = lumis.from_pairs(too_long)
    for file in files:
        if file.lfn in seen:
            raise ValueError(f"{file.lfn} is given twice")
        seen.add(file.lfn)
        if file.locations not in problems:
            problems[file.locations] = choice.problem(file.locations)
        todo = wanted.among(file.lumis)
        problem = NO_LUMI if not file.lumis else problems[file.locations] or (None if todo else NO_WANTED_LUMI)
        if problem is not None:
            kind = ExclusionKind.UNWANTED if problem is NO_WANTED_LUMI else ExclusionKind.UNUSABLE
            excluded.append(ExcludedFile(file.lfn, problem, kind))
            continue
        if not file.is_whole:
            raise PlanningRefused(
                f"{file.lfn} is partly planned by events ({file.left} are left), so its lumis cannot be planned; "
                "a request keeps its splitting algorithm"
            )
        if file.left_lumis is not None:
            todo = lumis.intersect(todo, file.left_lumis)
        without = lumis.intersect(file.lumis, unplannable) if unplannable else {}
        for run, first, last in lumis.iterate(lumis.intersect(todo, without)) if without else ():
            for lumi in range(first, last + 1):
                refused.setdefault((run, lumi), []).append(file.lfn)
        todo = lumis.subtract(todo, without) if without else todo
        if todo:
            run = next(iter(file.lumis))
            job_file = InputFile(file.lfn, file.size_bytes, file.events, None, None, file.parents if with_parents else ())
            mine = ReadableFile(job_file, choice.group(file.locations), todo, lumis.count(file.lumis) - lumis.count(without))
            mine.events = max(0, file.events - _known(file, without)) if without else file.events
            held.append(((run, file.lumis[run], file.lfn), mine))
    held.sort(key=lambda each: each[0])
    excluded.sort(key=lambda each: each.lfn)
    for position, (_, mine) in enumerate(held):
        mine.position = position
    return tuple(mine for _, mine in held), tuple(excluded), refused


def _known(file: InputFileSpec, ranges: LumiRanges) -> int:
    """Events that the catalogue counts in those of its odd lumis that are in ``ranges``."""
    odd = ((events, lumis.intersect({run: ((first, last),)}, ranges)) for run, first, last, events in file.odd_lumis)
    return sum(events * lumis.count(held) for events, held in odd)


class Segment(NamedTuple):
    """Lumis ``first..last`` of ``run`` that exactly these files hold: two or more, as ascending positions in the order."""

    run: int
    first: int
    last: int
    holders: tuple[int, ...]


def shared_segments(files: Sequence[ReadableFile]) -> Iterator[Segment]:
    """The lumis that are to be dealt and lie in more than one file, by run and ascending."""
    by_run: dict[int, list[tuple[int, int, bool]]] = {}  # where a file's interval begins, and where it has ended
    for position, file in enumerate(files):
        for run, intervals in file.todo.items():
            edges = by_run.setdefault(run, [])
            for first, last in intervals:
                edges += (first, position, True), (last + 1, position, False)
    for run in sorted(by_run):
        begin, holders = 0, set[int]()
        for lumi, position, begins in sorted(by_run.pop(run)):
            if len(holders) > 1 and begin < lumi:
                yield Segment(run, begin, lumi - 1, tuple(sorted(holders)))
            begin = lumi
            if begins:
                holders.add(position)
            else:
                holders.remove(position)


def pieces_by_group(files: Sequence[ReadableFile]) -> Iterator[tuple[Group, Iterator[list[Piece]]]]:
    """What is dealt to the jobs of each location group, in the order of their first files: the pieces file by file.

    A file's own lumis are dealt in its group. Lumis of several files are dealt in the group of the locations that these have in
    common, with the first of the files that is in this group; if none is, with the first file. So every lumi to be dealt is in
    exactly one group, once. The pieces of a file are by run and ascending.
    """
    shared: dict[int, list[Segment]] = {}  # by the positions of their holders
    found: dict[Group, dict[int, list[Segment] | None]] = {}  # the positions of a group, with the segments dealt there
    for file in files:
        found.setdefault(file.group, {})[file.position] = None
    for segment in shared_segments(files):
        for position in segment.holders:
            shared.setdefault(position, []).append(segment)
        group = frozenset.intersection(*{files[position].group for position in segment.holders})
        first = next((position for position in segment.holders if files[position].group == group), segment.holders[0])
        positions = found.setdefault(group, {})
        dealt = positions[first] = positions.get(first) or []
        dealt.append(segment)
    for group, positions in found.items():
        yield group, _pieces_by_file(files, group, positions, shared)


def _pieces_by_file(
    files: Sequence[ReadableFile],
    group: Group,
    positions: Mapping[int, list[Segment] | None],
    shared: Mapping[int, list[Segment]],
) -> Iterator[list[Piece]]:
    for position in sorted(positions):
        file = files[position]
        own = file.todo if file.group == group else {}
        if position in shared:
            own = lumis.subtract(own, lumis.from_intervals((s.run, s.first, s.last) for s in shared[position]))
        alone: tuple[ReadableFile, ...] = (file,)
        pieces: list[Piece] = [(run, first, last, alone) for run, spans in own.items() for first, last in spans]
        for segment in positions[position] or ():
            pieces.append((segment.run, segment.first, segment.last, tuple([files[holder] for holder in segment.holders])))
        yield sorted(pieces, key=_BY_RUN_AND_LUMI) if positions[position] else pieces
