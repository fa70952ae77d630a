"""EventBased without input: numbers for generated events and lumis (docs/splitting.md, Generation).

Event numbers are 64 bit and never start again: lumis and events both go on without gap from wherever the ledger says.
"""

from __future__ import annotations

from collections.abc import Iterator

from dags_app.payload.contract.documents import Generate
from dags_app.planning.sites import SiteChoice
from dags_app.planning.specs import GenerationLeft, GenerationSpec, JobSpec, WorkflowSpec
from dags_app.planning.splitters.rounding import round_to_lumis
from wms2.errors import PlanningRefused

#: Largest event number that the ledger (int8) and CMSSW (uint64) can both hold.
MAX_EVENT = 2**63 - 2
#: Largest lumi number: CMSSW counts lumis in 32 bits.
MAX_LUMI = 2**32 - 1


class GenerationSplitter:
    """Cuts a generation into jobs of whole lumis.

    EventsPerJob is at most the total, EventsPerLumi at most EventsPerJob, then EventsPerJob is rounded to whole lumis. These
    follow from the whole request, not from what is left, so every round cuts alike.
    """

    def __init__(self, workflow: WorkflowSpec) -> None:
        if workflow.generation is None:
            raise PlanningRefused("the request generates no events")
        self._spec = workflow.generation
        self._sites = SiteChoice(workflow).for_generation()
        _check_numbers(self._spec)
        events_per_job = min(self._spec.events_per_job, self._spec.events)
        self.events_per_lumi = min(self._spec.events_per_lumi, events_per_job)
        self.events_per_job = round_to_lumis(events_per_job, self.events_per_lumi)

    def split(self, left: GenerationLeft | None = None) -> Iterator[JobSpec]:
        """Jobs in order of their numbers.

        Raises:
            PlanningRefused: the last event or lumi would be too large to be a number of its kind.
        """
        if left is None:
            left = GenerationLeft(self._spec.first_event, self._spec.first_lumi, self._spec.events)
        self._check_end(left)
        return self._jobs(left)

    def _jobs(self, left: GenerationLeft) -> Iterator[JobSpec]:
        run, per_lumi, per_job, sites = self._spec.run, self.events_per_lumi, self.events_per_job, self._sites
        event, lumi = left.first_event, left.first_lumi
        end = event + left.events
        while event < end:
            events = min(per_job, end - event)
            lumis = -(-events // per_lumi)
            yield JobSpec(events, sites, Generate(run, event, event + events - 1, lumi, lumi + lumis - 1, per_lumi))
            event += events
            lumi += lumis

    def _check_end(self, left: GenerationLeft) -> None:
        full_jobs, rest = divmod(left.events, self.events_per_job)
        lumis = full_jobs * (self.events_per_job // self.events_per_lumi) + -(-rest // self.events_per_lumi)
        if left.first_event + left.events - 1 > MAX_EVENT:
            raise PlanningRefused(
                f"event numbers would pass {MAX_EVENT}; FirstEvent is {left.first_event}, {left.events} events are left"
            )
        if left.first_lumi + lumis - 1 > MAX_LUMI:
            raise PlanningRefused(
                f"lumi numbers would pass {MAX_LUMI}: {lumis} lumis from {left.first_lumi} on are needed; "
                "raise EventsPerLumi or lower FirstLumi"
            )


def _check_numbers(spec: GenerationSpec) -> None:
    for name, value in (
        ("FirstEvent", spec.first_event),
        ("FirstLumi", spec.first_lumi),
        ("RequestNumEvents", spec.events),
        ("EventsPerJob", spec.events_per_job),
        ("EventsPerLumi", spec.events_per_lumi),
    ):
        if value < 1:
            raise PlanningRefused(f"{name} must be at least 1, not {value}")
