"""Splitting algorithms: how a request's work is cut into jobs. A family of functions, one per algorithm (docs/splitting.md).

Each yields jobs, excluded files and refused lumis in order. Those by files or events hold no more than the jobs that are open;
those by lumis hold the files, as intervals, since any two may share a lumi. ``split`` takes the one a request names; generation
without input has its own. That numbers are at least 1 intake has seen to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dags_app.planning.specs import GenerationLeft, InputFileSpec, InputSpec, PlanItem, SplittingAlgo, WorkflowSpec
from dags_app.planning.splitters.event_based import split_by_events, split_generation
from dags_app.planning.splitters.file_based import split_by_files
from dags_app.planning.splitters.lumi_based import split_by_events_of_lumis, split_by_lumis
from wms2.errors import PlanningRefused

#: The algorithms that exist for requests with input. A new one is a function and a line here.
SPLITTERS: dict[SplittingAlgo, Callable[[WorkflowSpec, InputSpec, Iterable[InputFileSpec]], Iterator[PlanItem]]] = {
    SplittingAlgo.FILE_BASED: split_by_files,
    SplittingAlgo.EVENT_BASED: split_by_events,
    SplittingAlgo.LUMI_BASED: split_by_lumis,
    SplittingAlgo.EVENT_AWARE_LUMI_BASED: split_by_events_of_lumis,
}


def split(
    workflow: WorkflowSpec, files: Iterable[InputFileSpec] = (), *, generation_left: GenerationLeft | None = None
) -> Iterator[PlanItem]:
    """The jobs of a request, lazily: its generation if it has one, else what its splitter makes of ``files``.

    Args:
        files: input files, LFNs ascending within each set of locations; each may carry the event ranges or lumis that are left.
            A splitter by lumis needs all of them in one call.
        generation_left: where a later round goes on; None plans the whole generation.

    Raises:
        PlanningRefused: the work cannot be planned as asked. Raised at the call, or while iterating.
    """
    if workflow.generation is not None:
        return split_generation(workflow, workflow.generation, generation_left)
    if workflow.input is None:
        raise PlanningRefused("the request neither generates events nor names an input dataset")
    return SPLITTERS[workflow.splitting.algorithm](workflow, workflow.input, files)
