"""What LumiBased and EventAwareLumiBased must answer, lumi by lumi over plain sets: slow, and plain enough to be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dags_app.planning import lumis
from dags_app.planning.specs import InputFileSpec, LumiRanges, SplittingAlgo, WorkflowSpec

Lumi = tuple[int, int]  # run, lumi


def contains(ranges: LumiRanges, run: int, lumi: int) -> bool:
    """Whether the lumi is in the ranges."""
    return any(first <= lumi <= last for first, last in ranges.get(run, ()))


@dataclass
class Job:
    """Names of files and lumis; ``cost`` is what its lumis take of the limit."""

    lfns: set[str] = field(default_factory=set)
    lumis: set[Lumi] = field(default_factory=set)
    cost: Fraction = Fraction(0)
    sites: frozenset[str] = frozenset()


@dataclass
class Answer:
    jobs: list[Job] = field(default_factory=list)
    excluded: set[str] = field(default_factory=set)
    refused: dict[Lumi, set[str]] = field(default_factory=dict)


def pairs(ranges: LumiRanges) -> set[Lumi]:
    return {(run, lumi) for run, first, last in lumis.iterate(ranges) for lumi in range(first, last + 1)}


def sites_at(workflow: WorkflowSpec, locations: frozenset[str]) -> frozenset[str]:
    if workflow.trust_sitelists:
        return frozenset(workflow.site_whitelist) - frozenset(workflow.site_blacklist)
    allowed = locations & frozenset(workflow.site_whitelist) if workflow.site_whitelist else locations
    return allowed - frozenset(workflow.site_blacklist)


def wanted_of(workflow: WorkflowSpec, file: InputFileSpec) -> set[Lumi]:
    spec = workflow.input
    assert spec is not None
    listed = pairs(spec.lumi_list)
    return {
        (run, lumi)
        for run, lumi in pairs(file.lumis)
        if (not listed or (run, lumi) in listed)
        and (not spec.run_whitelist or run in spec.run_whitelist)
        and run not in spec.run_blacklist
    }


def cost_in(workflow: WorkflowSpec, file: InputFileSpec) -> Fraction:
    if workflow.splitting.algorithm is SplittingAlgo.LUMI_BASED:
        return Fraction(1)
    average = Fraction(file.events, len(pairs(file.lumis)))
    return Fraction(round(average)) or average


def order_of(file: InputFileSpec) -> tuple[int, tuple[tuple[int, int], ...], str]:
    run = min(file.lumis)
    return run, file.lumis[run], file.lfn


def reference_plan(workflow: WorkflowSpec, files: Sequence[InputFileSpec]) -> Answer:
    """The whole answer, jobs in order."""
    answer = Answer()
    todo: dict[str, set[Lumi]] = {}
    for file in files:
        wanted = wanted_of(workflow, file)
        somewhere = workflow.trust_sitelists or bool(file.locations)
        if not file.lumis or not somewhere or not sites_at(workflow, file.locations) or not wanted:
            answer.excluded.add(file.lfn)
        else:
            todo[file.lfn] = wanted if file.left_lumis is None else wanted & pairs(file.left_lumis)
    ordered = sorted((file for file in files if todo.get(file.lfn)), key=order_of)

    def group_of(file: InputFileSpec) -> frozenset[str]:
        return frozenset(workflow.site_whitelist) if workflow.trust_sitelists else file.locations

    dealt_at: dict[tuple[frozenset[str], int], list[tuple[Lumi, list[InputFileSpec]]]] = {}
    own_groups = list(dict.fromkeys(group_of(file) for file in ordered))
    other_groups: list[frozenset[str]] = []
    for lumi in sorted(set().union(*todo.values())):
        holders = [file for file in ordered if lumi in todo[file.lfn]]
        group = frozenset.intersection(*map(group_of, holders))
        stop = next((file for file in holders if group_of(file) == group), holders[0])
        if group not in own_groups + other_groups:
            other_groups.append(group)
        dealt_at.setdefault((group, ordered.index(stop)), []).append((lumi, holders))

    for group in own_groups + other_groups:
        _deal(workflow, group, [dealt_at.get((group, place), []) for place in range(len(ordered))], answer)
    return answer


def _deal(
    workflow: WorkflowSpec, group: frozenset[str], stops: list[list[tuple[Lumi, list[InputFileSpec]]]], answer: Answer
) -> None:
    splitting, sites = workflow.splitting, sites_at(workflow, group)
    by_lumi = splitting.algorithm is SplittingAlgo.LUMI_BASED
    limit = splitting.lumis_per_job if by_lumi else splitting.events_per_job
    job: Job | None = None
    for stop in stops:
        if splitting.halt_job_on_file_boundaries:
            job = None
        for lumi, holders in sorted(stop, key=lambda each: each[0]):
            cost = Fraction(1) if by_lumi else sum((cost_in(workflow, file) for file in holders), Fraction(0))
            seconds = float(cost) * workflow.resources.time_per_event_seconds
            if not group or not sites or (not by_lumi and seconds > splitting.job_time_limit_seconds):
                answer.refused[lumi] = {file.lfn for file in holders}
                continue
            full = job is not None and cost > 0 and job.cost + cost > limit
            if job is None or full or {run for run, _ in job.lumis} != {lumi[0]}:
                job = Job(sites=sites)
                answer.jobs.append(job)
            job.lfns |= {file.lfn for file in holders}
            job.lumis.add(lumi)
            job.cost += cost
