"""EventBased without input: numbers for generated events and lumis (docs/splitting.md, Generation).

Event numbers are 64 bit and never start again: lumis and events both go on without gap from wherever the ledger says.
EventsPerJob is at most the total, EventsPerLumi at most EventsPerJob, then EventsPerJob is rounded to whole lumis. These
follow from the whole request, not from what is left, so every round cuts alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from dags_app.payload.contract.documents import Generate
from dags_app.planning.selection import SiteChoice
from dags_app.planning.specs import GenerationLeft, GenerationSpec, JobSpec, WorkflowSpec
from dags_app.planning.splitters.rounding import round_to_lumis
from wms2.errors import PlanningRefused

#: Largest event number that the ledger (int8) and CMSSW (uint64) can both hold.
MAX_EVENT = 2**63 - 2
#: Largest lumi number: CMSSW counts lumis in 32 bits.
MAX_LUMI = 2**32 - 1


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
        lumis = -(-events // per_lumi)
        yield JobSpec(events, sites, Generate(spec.run, event, event + events - 1, lumi, lumi + lumis - 1, per_lumi))
        event += events
        lumi += lumis


def _check_end(left: GenerationLeft, per_job: int, per_lumi: int) -> None:
    full_jobs, rest = divmod(left.events, per_job)
    lumis = full_jobs * (per_job // per_lumi) + -(-rest // per_lumi)
    if left.first_event + left.events - 1 > MAX_EVENT:
        raise PlanningRefused(
            f"event numbers would pass {MAX_EVENT}; FirstEvent is {left.first_event}, {left.events} events are left"
        )
    if left.first_lumi + lumis - 1 > MAX_LUMI:
        raise PlanningRefused(
            f"lumi numbers would pass {MAX_LUMI}: {lumis} lumis from {left.first_lumi} on are needed; "
            "raise EventsPerLumi or lower FirstLumi"
        )
