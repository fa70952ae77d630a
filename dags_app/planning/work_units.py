"""Groups jobs into work units and says what each unit takes from the ledger.

Owns the first round's grouping (a fixed number of jobs that may run at the same sites), unit names and claims. Slots are
``sizing.py``, later tasks are ``levels.py``. Spec 4.5 (merge groups); docs/design/model.md, Sizes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dags_app.payload.contract.documents import Generate
from dags_app.planning import lumis
from dags_app.planning.levels import LevelPlan, levels_of
from dags_app.planning.specs import ClaimKind, ClaimSpec, JobSpec, LumiRanges, WorkUnitSpec
from wms2.errors import PlanningRefused

_FILE_EVENTS = ClaimKind.FILE_EVENTS  # an enum's member costs a look-up each time it is named

#: Nodes of a unit beside its processing nodes: landing, merge, cleanup.
EXTRA_NODES = 3


def group_jobs(
    jobs: Iterable[JobSpec],
    *,
    jobs_per_work_unit: int,
    bytes_per_event: Mapping[str, float],
    levels: Sequence[LevelPlan] = (),
) -> Iterator[WorkUnitSpec]:
    """Work units in the order in which they become full; the last, smaller ones of each set of sites at the end.

    Args:
        jobs: in order; jobs with the same sites keep it inside and across units.
        jobs_per_work_unit: jobs of the first task in a unit.
        bytes_per_event: output dataset -> bytes per event of the first task's jobs (``sizing.bytes_per_event``).
        levels: of later tasks (``levels.level_plans``).
    """
    waiting: dict[frozenset[str], list[JobSpec]] = {}
    index = 0
    for job in jobs:
        group = waiting.setdefault(job.sites, [])
        group.append(job)
        if len(group) == jobs_per_work_unit:
            yield _unit(index, group, bytes_per_event, levels)
            index += 1
            group.clear()
    for group in waiting.values():
        if group:
            yield _unit(index, group, bytes_per_event, levels)
            index += 1


def _unit(index: int, jobs: list[JobSpec], bytes_per_event: Mapping[str, float], levels: Sequence[LevelPlan]) -> WorkUnitSpec:
    events = sum([job.events for job in jobs])
    return WorkUnitSpec(
        index=index,
        name=f"mg_{index:06d}",
        jobs=tuple(jobs),
        sites=jobs[0].sites,
        claims=tuple(claims_of(jobs)),
        events=events,
        estimated_output_bytes={dataset: round(events * size) for dataset, size in bytes_per_event.items()},
        levels=levels_of(levels, jobs) if levels else (),
    )


class DagFill(NamedTuple):
    """The units that one DAG takes; ``more`` says that work is left for a later round."""

    units: tuple[WorkUnitSpec, ...]
    more: bool


def work_of(unit: WorkUnitSpec) -> int:
    """How much work a unit is, as the ledger counts shares: in lumis where it is split by lumi, else events, at last claims."""
    lumis = sum(claim.last - claim.first + 1 for claim in unit.claims if claim.kind is ClaimKind.RUN_LUMIS)
    return lumis or unit.events or len(unit.claims)


def fill_dag(units: Iterable[WorkUnitSpec], *, max_units: int, max_nodes: int, max_work: int = sys.maxsize) -> DagFill:
    """The first units that fit the limits of one DAG, up to the one that reaches ``max_work`` (``work_of``). What is not taken
    is not claimed, so a later round plans it again.

    Raises:
        PlanningRefused: already the first unit has more nodes than a DAG may have, so no round would ever take it.
    """
    taken: list[WorkUnitSpec] = []
    nodes = work = 0
    with _no_cycle_search():
        for unit in units:
            nodes += unit.processing_nodes + EXTRA_NODES
            if not taken and nodes > max_nodes:
                raise PlanningRefused(
                    f"a work unit has {nodes} nodes, more than the {max_nodes} of a DAG; raise EventsPerJob, LumisPerJob or "
                    "FilesPerJob of the later tasks"
                )
            if len(taken) == max_units or nodes > max_nodes or work >= max_work:
                return DagFill(tuple(taken), True)
            taken.append(unit)
            if max_work < sys.maxsize:
                work += work_of(unit)
    return DagFill(tuple(taken), False)


@contextmanager
def _no_cycle_search() -> Iterator[None]:
    """Plans have no reference cycles, and looking for some in all that is kept, again and again, is half of planning's time."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


def claims_of(jobs: Iterable[JobSpec]) -> list[ClaimSpec]:
    """What the jobs take from the ledger, in order, neighbouring ranges joined.

    A whole file claims all its events, also under a lumi mask: no other unit may read the file for this request. A file
    without events claims 0..0. Jobs of the lumi splittings claim the lumis of their masks instead, by run and ascending: the
    next job of the same file reads other lumis of it.
    """
    claims: list[ClaimSpec] = []
    masks: list[LumiRanges] = []
    before: str | None = None  # the file of the last claim
    for job in jobs:
        if job.by_lumi:
            masks.append(job.mask or {})
            continue
        made = job.generate
        if made is not None:
            _claim_generated(claims, made)
        for lfn, _size, events, first_event, last_event, _parents in job.files:
            first = first_event or 0
            last = last_event if last_event is not None else events - 1 if events > 0 else 0
            if lfn == before and claims[-1].last + 1 == first:
                first = claims.pop().first
            before = lfn
            claims.append(ClaimSpec(_FILE_EVENTS, first, last, lfn))
    if masks:
        for run, first, last in lumis.iterate(lumis.union(*masks)):
            claims.append(ClaimSpec(ClaimKind.RUN_LUMIS, first, last, "", run))
    return claims


def _claim_generated(claims: list[ClaimSpec], made: Generate) -> None:
    first, first_lumi = made.first_event, made.first_lumi
    before = claims[-1] if claims else None
    if before is not None and (before.run, before.last + 1, before.last_lumi + 1) == (made.run, first, first_lumi):
        first, first_lumi = before.first, before.first_lumi
        claims.pop()
    claims.append(ClaimSpec(ClaimKind.GENERATED, first, made.last_event, "", made.run, first_lumi, made.last_lumi))
