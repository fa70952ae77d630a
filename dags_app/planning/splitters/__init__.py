"""Splitting algorithms: how a request's work is cut into jobs. A family of classes, one per algorithm (docs/splitting.md).

A splitter is made from a ``WorkflowSpec`` and yields jobs, excluded files and refused lumis in order. Those by files or events
hold no more than the jobs that are open; those by lumis hold the files, as intervals, since any two may share a lumi.
``split`` takes the one a request names; generation without input has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from dags_app.planning.specs import GenerationLeft, InputFileSpec, PlanItem, SplittingAlgo, WorkflowSpec
from dags_app.planning.splitters.event_based import EventBasedSplitter
from dags_app.planning.splitters.file_based import FileBasedSplitter
from dags_app.planning.splitters.generation import GenerationSplitter
from dags_app.planning.splitters.lumi_based import EventAwareLumiBasedSplitter, LumiBasedSplitter
from wms2.errors import PlanningRefused


class Splitter(Protocol):
    """Cuts input files into jobs. Files come with ascending LFNs within each set of locations.

    A splitter by lumis needs all files in one call: two calls do not see what files of both share.
    """

    def split(self, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
        """Jobs in order, each file that no job reads, and each lumi that no job may take, with the reasons."""
        ...


#: The algorithms that exist for requests with input. A new one is a class and a line here.
SPLITTERS: dict[SplittingAlgo, Callable[[WorkflowSpec], Splitter]] = {
    SplittingAlgo.FILE_BASED: FileBasedSplitter,
    SplittingAlgo.EVENT_BASED: EventBasedSplitter,
    SplittingAlgo.LUMI_BASED: LumiBasedSplitter,
    SplittingAlgo.EVENT_AWARE_LUMI_BASED: EventAwareLumiBasedSplitter,
}


def split(
    workflow: WorkflowSpec, files: Iterable[InputFileSpec] = (), *, generation_left: GenerationLeft | None = None
) -> Iterator[PlanItem]:
    """The jobs of a request, lazily: its generation if it has one, else what its splitter makes of ``files``.

    Args:
        files: input files, LFNs ascending within each set of locations; each may carry the event ranges or lumis that are left.
        generation_left: where a later round goes on; None plans the whole generation.

    Raises:
        PlanningRefused: the work cannot be planned as asked. Raised at the call, or while iterating over files.
    """
    if workflow.generation is not None:
        return GenerationSplitter(workflow).split(generation_left)
    if workflow.input is None:
        raise PlanningRefused("the request neither generates events nor names an input dataset")
    return SPLITTERS[workflow.splitting.algorithm](workflow).split(files)


__all__ = [
    "SPLITTERS",
    "EventAwareLumiBasedSplitter",
    "EventBasedSplitter",
    "FileBasedSplitter",
    "GenerationSplitter",
    "LumiBasedSplitter",
    "Splitter",
    "split",
]
