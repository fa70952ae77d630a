"""Splitting algorithms: how a request's work is cut into jobs. A family of classes, one per algorithm (``splitting.md``).

A splitter is made from a ``WorkflowSpec`` and yields jobs and excluded files in order, holding no more than the jobs that
are open. ``split_input`` finds the one a request names; generation without input has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from dags_app.planning.specs import GenerationLeft, InputFileSpec, PlanItem, SplittingAlgo, WorkflowSpec
from dags_app.planning.splitters.event_based import EventBasedSplitter
from dags_app.planning.splitters.file_based import FileBasedSplitter
from dags_app.planning.splitters.generation import GenerationSplitter
from wms2.errors import PlanningRefused


class Splitter(Protocol):
    """Cuts input files into jobs. Files come with ascending LFNs within each set of locations."""

    def split(self, files: Iterable[InputFileSpec]) -> Iterator[PlanItem]:
        """Jobs in order, and each file that no job reads with its reason."""
        ...


#: The algorithms that exist for requests with input. A new one is a class and a line here.
SPLITTERS: dict[SplittingAlgo, Callable[[WorkflowSpec], Splitter]] = {
    SplittingAlgo.FILE_BASED: FileBasedSplitter,
    SplittingAlgo.EVENT_BASED: EventBasedSplitter,
}


def splitter_for(workflow: WorkflowSpec) -> Splitter:
    """The splitter of a request with input.

    Raises:
        PlanningRefused: the algorithm does not exist yet, or cannot do what the request asks.
    """
    algorithm = workflow.splitting.algorithm
    if algorithm not in SPLITTERS:
        raise PlanningRefused(f"not yet supported: {algorithm.value}")
    return SPLITTERS[algorithm](workflow)


def split(
    workflow: WorkflowSpec, files: Iterable[InputFileSpec] = (), *, generation_left: GenerationLeft | None = None
) -> Iterator[PlanItem]:
    """The jobs of a request, lazily: its generation if it has one, else what its splitter makes of ``files``.

    Args:
        files: input files, LFNs ascending within each set of locations; each may carry the event ranges that are left.
        generation_left: where a later round goes on; None plans the whole generation.

    Raises:
        PlanningRefused: the work cannot be planned as asked. Raised at the call, or while iterating over files.
    """
    if workflow.generation is not None:
        return GenerationSplitter(workflow).split(generation_left)
    if workflow.input is None:
        raise PlanningRefused("the request neither generates events nor names an input dataset")
    return splitter_for(workflow).split(files)


__all__ = ["SPLITTERS", "EventBasedSplitter", "FileBasedSplitter", "GenerationSplitter", "Splitter", "split", "splitter_for"]
