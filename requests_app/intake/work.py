"""What there is to do and how it is cut into jobs: generation, or an input dataset. Owns the numbers' rules (docs/splitting.md).

Nothing is mapped to another algorithm: what is not built yet is refused by name.
"""

from __future__ import annotations

from dags_app.planning.lumis import round_to_lumis
from dags_app.planning.specs import GenerationSpec, SplittingAlgo, SplittingSpec
from dags_app.planning.splitters import SPLITTERS
from dags_app.planning.splitters.event_based import MAX_EVENT, MAX_LUMI
from requests_app.intake.chain import Part
from requests_app.intake.draft import Work
from requests_app.intake.steps import MIN_FILTER_EFFICIENCY
from requests_app.intake.values import choice, flag, is_set, real, shown, whole
from requests_app.intake.wanted import read_wanted, refuse_lists_without_input

#: A job without EventsPerJob is sized to take this long.
TARGET_JOB_SECONDS = 43_200
DEFAULT_LUMIS_PER_JOB = 8
_DEFAULT_ALGORITHM = SplittingAlgo.EVENT_AWARE_LUMI_BASED
_MAX_EVENTS = 10**12
#: More jobs than this in one request are a typing error (a lifetime of the largest production campaigns).
_MAX_JOBS = 10**7
_GENERATED_RUN = 1
#: An LHESource skips the events before a job's own, and counts them in 32 bits.
_MAX_LHE_EVENT = 2**32


def read_generation(first: Part, time_per_event_seconds: float) -> Work:
    """Generation without input: how many events, from which event and lumi on, in jobs of how many."""
    algorithm = first.own.get("SplittingAlgo")
    if is_set(algorithm) and algorithm != SplittingAlgo.EVENT_BASED:
        first.problem("SplittingAlgo", f"generation without input is split by EventBased only, not by {shown(algorithm)}")
    refuse_lists_without_input(first)
    asked = first.require("RequestNumEvents", whole(1, _MAX_EVENTS), 1)
    efficiency = first.read("FilterEfficiency", real(MIN_FILTER_EFFICIENCY, 1.0), 1.0)
    events = int(asked / efficiency)
    if events > _MAX_EVENTS:
        first.problem("RequestNumEvents", f"makes {events} events to generate; at most {_MAX_EVENTS} are possible")
        events = 1
    per_job, per_lumi = _whole_lumis(first, min(read_events_per_job(first, time_per_event_seconds), events))
    generation = GenerationSpec(
        run=_GENERATED_RUN,
        first_event=first.document.read("FirstEvent", whole(1, MAX_EVENT), 1),
        first_lumi=first.document.read("FirstLumi", whole(1, MAX_LUMI), 1),
        events=events,
        events_per_job=per_job,
        events_per_lumi=per_lumi,
    )
    _check_range(first, generation)
    return Work(
        splitting=SplittingSpec(algorithm=SplittingAlgo.EVENT_BASED, events_per_job=per_job), generation=generation, input=None
    )


def read_input(first: Part, time_per_event_seconds: float) -> Work:
    """An input dataset, what of it is wanted and how it is cut; an algorithm that no splitter knows is refused by name."""
    splitting = read_splitting(first, time_per_event_seconds)
    if splitting.algorithm not in SPLITTERS:
        default = "" if is_set(first.own.get("SplittingAlgo")) else ", the default when SplittingAlgo is not given"
        first.later("SplittingAlgo", f"{splitting.algorithm} splitting{default}")
    return Work(splitting=splitting, generation=None, input=read_wanted(first))


def read_splitting(part: Part, time_per_event_seconds: float) -> SplittingSpec:
    """How what a part reads is cut into jobs; by ReqMgr2's default where it does not say."""
    algorithm: str = _DEFAULT_ALGORITHM
    if is_set(part.own.get("SplittingAlgo")):
        algorithm = part.read("SplittingAlgo", choice(*SplittingAlgo), SplittingAlgo.FILE_BASED.value)
    per_job, per_lumi = read_events_per_job(part, time_per_event_seconds), 0
    if part.prefix and is_set(part.own.get("EventsPerLumi")):
        per_job, per_lumi = _whole_lumis(part, per_job)
    return SplittingSpec(
        algorithm=SplittingAlgo(algorithm),
        files_per_job=part.read("FilesPerJob", whole(1, 10**6), 1),
        events_per_job=per_job,
        events_per_lumi=per_lumi,
        lumis_per_job=part.read("LumisPerJob", whole(1, 10**6), DEFAULT_LUMIS_PER_JOB),
    )


def read_events_per_job(first: Part, time_per_event_seconds: float) -> int:
    """EventsPerJob; without it as many events as take twelve hours."""
    default = min(max(1, int(TARGET_JOB_SECONDS / time_per_event_seconds)), _MAX_EVENTS)
    return first.read("EventsPerJob", whole(1, _MAX_EVENTS), default)


def _whole_lumis(first: Part, per_job: int) -> tuple[int, int]:
    """Events per job and per lumi of a chain: EventsPerLumi at most EventsPerJob, and EventsPerJob a multiple of it."""
    per_lumi = min(first.read("EventsPerLumi", whole(1, _MAX_EVENTS), per_job), per_job)
    return round_to_lumis(per_job, per_lumi), per_lumi


def _check_range(first: Part, generation: GenerationSpec) -> None:
    """Refuse ranges whose last event or lumi has no number, and an impossible number of jobs."""
    if generation.first_event + generation.events - 1 > MAX_EVENT:
        first.document.problem("FirstEvent", f"the last of {generation.events} events would be above {MAX_EVENT}")
    lhe = first.read("LheInputFiles", flag, fallback=False) or first.document.read("LheInputFiles", flag, fallback=False)
    if lhe and generation.first_event + generation.events - 1 > _MAX_LHE_EVENT:
        why = f"the last of {generation.events} events would be above {_MAX_LHE_EVENT}: no source of LHE files skips so many"
        first.document.problem("FirstEvent", why)
    full_jobs, rest = divmod(generation.events, generation.events_per_job)
    lumis = full_jobs * -(-generation.events_per_job // generation.events_per_lumi) + -(-rest // generation.events_per_lumi)
    if generation.first_lumi + lumis - 1 > MAX_LUMI:
        first.document.problem("FirstLumi", f"the last of {lumis} lumis would be above {MAX_LUMI}")
    if full_jobs > _MAX_JOBS:
        first.problem("EventsPerJob", f"makes {full_jobs} jobs; at most {_MAX_JOBS} are possible")
