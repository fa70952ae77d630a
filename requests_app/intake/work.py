"""What there is to do and how it is cut into jobs: generation, or an input dataset. Owns the numbers' rules (docs/splitting.md).

Nothing is mapped to another algorithm: what is not built yet is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from dags_app.planning.specs import GenerationSpec, SplittingAlgo, SplittingSpec
from dags_app.planning.splitters import SPLITTERS
from dags_app.planning.splitters.generation import MAX_EVENT, MAX_LUMI
from dags_app.planning.splitters.rounding import round_to_lumis
from requests_app.intake.chain import StepView
from requests_app.intake.draft import Work
from requests_app.intake.findings import Findings
from requests_app.intake.steps import MIN_FILTER_EFFICIENCY
from requests_app.intake.values import Unreadable, is_set, real, shown, whole
from requests_app.intake.wanted import read_wanted, refuse_lists_without_input

#: A job without EventsPerJob is sized to take this long.
TARGET_JOB_SECONDS = 43_200
DEFAULT_LUMIS_PER_JOB = 8
_DEFAULT_ALGORITHM = SplittingAlgo.EVENT_AWARE_LUMI_BASED
_MAX_EVENTS = 10**12
#: More jobs than this in one request are a typing error (a lifetime of the largest production campaigns).
_MAX_JOBS = 10**7
_GENERATED_RUN = 1


def read_generation(document: Mapping[str, object], first: StepView, time_per_event_seconds: float, findings: Findings) -> Work:
    """Generation without input: how many events, from which event and lumi on, in jobs of how many."""
    algorithm_field, algorithm = first.value("SplittingAlgo")
    if is_set(algorithm) and algorithm != SplittingAlgo.EVENT_BASED:
        findings.problem(algorithm_field, f"generation without input is split by EventBased only, not by {shown(algorithm)}")
    refuse_lists_without_input(document, first, findings)
    asked = findings.require(*first.value("RequestNumEvents"), whole(1, _MAX_EVENTS), 1)
    efficiency = findings.read(*first.value("FilterEfficiency"), real(MIN_FILTER_EFFICIENCY, 1.0), 1.0)
    events = int(asked / efficiency)
    if events > _MAX_EVENTS:
        findings.problem(
            first.prefix + "RequestNumEvents", f"makes {events} events to generate; at most {_MAX_EVENTS} are possible"
        )
        events = 1
    per_job, per_lumi = _whole_lumis(first, min(read_events_per_job(first, time_per_event_seconds, findings), events), findings)
    generation = GenerationSpec(
        run=_GENERATED_RUN,
        first_event=findings.read("FirstEvent", document.get("FirstEvent"), whole(1, MAX_EVENT), 1),
        first_lumi=findings.read("FirstLumi", document.get("FirstLumi"), whole(1, MAX_LUMI), 1),
        events=events,
        events_per_job=per_job,
        events_per_lumi=per_lumi,
    )
    _check_range(first, generation, findings)
    return Work(
        splitting=SplittingSpec(algorithm=SplittingAlgo.EVENT_BASED, events_per_job=per_job), generation=generation, input=None
    )


def read_input(document: Mapping[str, object], first: StepView, time_per_event_seconds: float, findings: Findings) -> Work:
    """An input dataset, what of it is wanted and how it is cut; an algorithm that no splitter knows is refused by name."""
    splitting = read_splitting(first, time_per_event_seconds, findings)
    if splitting.algorithm not in SPLITTERS:
        field, value = first.value("SplittingAlgo")
        default = "" if is_set(value) else ", the default when SplittingAlgo is not given"
        findings.later(field, f"{splitting.algorithm} splitting{default}")
    return Work(splitting=splitting, generation=None, input=read_wanted(document, first, findings))


def read_splitting(view: StepView, time_per_event_seconds: float, findings: Findings) -> SplittingSpec:
    """How what a part reads is cut into jobs."""
    per_job, per_lumi = read_events_per_job(view, time_per_event_seconds, findings), 0
    if view.prefix and is_set(view.own.get("EventsPerLumi")):
        per_job, per_lumi = _whole_lumis(view, per_job, findings)
    return SplittingSpec(
        algorithm=_read_algorithm(view, findings),
        files_per_job=findings.read(*view.value("FilesPerJob"), whole(1, 10**6), 1),
        events_per_job=per_job,
        events_per_lumi=per_lumi,
        lumis_per_job=findings.read(*view.value("LumisPerJob"), whole(1, 10**6), DEFAULT_LUMIS_PER_JOB),
    )


def _read_algorithm(view: StepView, findings: Findings) -> SplittingAlgo:
    """How the input of a step or task is cut; ReqMgr2's default when it does not say."""
    field, value = view.value("SplittingAlgo")
    return findings.read(field, value, _algorithm, SplittingAlgo.FILE_BASED) if is_set(value) else _DEFAULT_ALGORITHM


def _algorithm(value: object) -> SplittingAlgo:
    try:
        return SplittingAlgo(str(value))
    except ValueError as error:
        raise Unreadable(f"must be one of {', '.join(SplittingAlgo)}, not {shown(value)}") from error


def read_events_per_job(first: StepView, time_per_event_seconds: float, findings: Findings) -> int:
    """EventsPerJob; without it as many events as take twelve hours."""
    default = min(max(1, int(TARGET_JOB_SECONDS / time_per_event_seconds)), _MAX_EVENTS)
    return findings.read(*first.value("EventsPerJob"), whole(1, _MAX_EVENTS), default)


def _whole_lumis(first: StepView, per_job: int, findings: Findings) -> tuple[int, int]:
    """Events per job and per lumi of a chain: EventsPerLumi at most EventsPerJob, and EventsPerJob a multiple of it."""
    per_lumi = min(findings.read(*first.value("EventsPerLumi"), whole(1, _MAX_EVENTS), per_job), per_job)
    return round_to_lumis(per_job, per_lumi), per_lumi


def _check_range(first: StepView, generation: GenerationSpec, findings: Findings) -> None:
    """Refuse ranges whose last event or lumi has no number, and more jobs than anybody means."""
    if generation.first_event + generation.events - 1 > MAX_EVENT:
        findings.problem("FirstEvent", f"the last of {generation.events} events would be above {MAX_EVENT}")
    full_jobs, rest = divmod(generation.events, generation.events_per_job)
    lumis = full_jobs * -(-generation.events_per_job // generation.events_per_lumi) + -(-rest // generation.events_per_lumi)
    if generation.first_lumi + lumis - 1 > MAX_LUMI:
        findings.problem("FirstLumi", f"the last of {lumis} lumis would be above {MAX_LUMI}")
    if full_jobs > _MAX_JOBS:
        findings.problem(f"{first.prefix}EventsPerJob", f"makes {full_jobs} jobs; at most {_MAX_JOBS} are possible")
