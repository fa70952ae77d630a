"""Sizing without a pool: random requests, their jobs simulated round after round, sized by the rules that rounds go by.

Each step has CPU time, a serial part, waiting, memory by threads and length, tails, filters and sizes that only the simulation
knows. Checked: no decision outside its bounds, what is asked against what is used, throughput, merged sizes, and that later
rounds do not swing. ``BENCH_SIZES`` names how many requests.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log

from dags_app.payload.contract.step_profile import StepRun
from dags_app.planning.adaptive import size_round
from dags_app.planning.measured import TARGET_WALL_SECONDS, Sizing, SizingLimits, Spread, StepMeasured
from dags_app.planning.specs import MAX_WALL_SECONDS, GenerationSpec, ResourceSpec, WorkflowSpec
from tests.support.planning import generation_workflow, output, step

LIMITS = SizingLimits(default_memory_per_core_mb=2000, max_memory_per_core_mb=3000)
ROUNDS = 5
REQUESTS = 1000
#: Share of requests that may miss a target from round 2 on.
MOST_MISSES = 0.05
MODULE = "RAWoutput"
#: Share of requests whose throughput may fall from one round to the next.
MOST_SLOWER = 0.01
GUESSED = "memory_mb: a layout that has not run yet"
#: Jobs of a round that are simulated: of the first a unit of eight, of later ones at most these.
JOBS = 250


@dataclass(frozen=True, slots=True)
class StepTruth:
    """What a step really takes."""

    cpu_seconds: float  # of an event
    serial: float
    waiting: float  # share of its time that a thread waits
    base_mb: float
    thread_mb: float
    leak_mb_per_hour: float
    spread: float  # sigma of a job's logarithms, of time and memory
    passes: float
    bytes_per_event: float  # of what it writes
    start_seconds: float
    tail_share: float = 0.0  # of jobs, which take longer by a Pareto factor
    tail_alpha: float = 2.5  # its exponent

    def slowness(self, rng: random.Random) -> float:
        """A job's factor on its time."""
        tail = rng.paretovariate(self.tail_alpha) if rng.random() < self.tail_share else 1.0
        return exp(rng.gauss(0, self.spread)) * tail

    def busy(self, threads: int) -> float:
        """Cores that one process keeps busy."""
        return (1 - self.waiting) * threads / (1 + self.serial * (threads - 1))


@dataclass(frozen=True, slots=True)
class Round:
    """What was asked for and what its jobs took."""

    cores: int
    memory_mb: int
    used_mb: float  # p95 over jobs, of the step that takes most
    over: float  # share of jobs that took more than asked
    events_per_job: int
    wall_seconds: float  # mean of jobs
    too_long: float  # share of jobs beyond the longest wall time
    merged_bytes: float  # of the largest output of a unit
    throughput: float  # events per core-hour
    efficiency: float
    bounds: frozenset[str]  # what was bounded
    layouts: tuple[tuple[int, int], ...]

    @property
    def waste(self) -> float:
        """Share of the memory that was asked for and not used."""
        return (self.memory_mb - self.used_mb) / self.memory_mb


@dataclass(slots=True)
class Course:
    """The rounds of one request."""

    workflow: WorkflowSpec
    truths: tuple[StepTruth, ...]
    rounds: list[Round] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)  # decisions outside their bounds


def random_truth(rng: random.Random, first: bool) -> StepTruth:
    """Inefficient, hungry, leaking, with heavy tails and filters: each sometimes."""
    hungry = rng.random() < 0.25
    return StepTruth(
        cpu_seconds=exp(rng.uniform(log(0.5), log(120))),
        serial=rng.choice((0.0, 0.02, 0.1, 0.3, 0.7)) * rng.uniform(0.5, 1.4),
        waiting=rng.choice((0.0, 0.0, 0.05, 0.4)) * rng.uniform(0.5, 1.5),
        base_mb=rng.uniform(2500, 9000) if hungry else rng.uniform(600, 2500),
        thread_mb=rng.choice((100, 250, 900 if hungry else 400)) * rng.uniform(0.5, 1.2),
        leak_mb_per_hour=rng.uniform(20, 250) if rng.random() < 0.2 else 0.0,
        spread=rng.choice((0.03, 0.08, 0.25)),
        passes=10 ** rng.uniform(-4, 0) if first and rng.random() < 0.35 else 1.0,
        bytes_per_event=exp(rng.uniform(log(2e4), log(3e6))),
        start_seconds=rng.uniform(10, 120),
        tail_share=rng.uniform(0.01, 0.1) if rng.random() < 0.25 else 0.0,
        tail_alpha=rng.uniform(1.8, 3),
    )


def random_request(rng: random.Random) -> Course:
    """One to three steps, with figures that are wrong as requests' figures are."""
    truths = tuple(random_truth(rng, number == 0) for number in range(rng.randint(1, 3)))
    hinted = min(truths[0].passes * rng.choice((1, 1, 0.3, 3)), 1.0)
    return course_of(
        truths,
        rng.choice((1, 2, 4, 8, 8, 8, 16)),
        exp(rng.gauss(0, 0.7)),
        hinted=hinted,
        memory_per_core_mb=rng.randint(2000, 3000),
        filtered_per_lumi=rng.choice((20, 100, 300)),
    )


def course_of(
    truths: tuple[StepTruth, ...],
    cores: int,
    wrong: float,
    *,
    hinted: float = 1.0,
    memory_per_core_mb: int = 2000,
    filtered_per_lumi: int = 1,
) -> Course:
    """A request whose time per event is ``wrong`` by a factor, and whose filter efficiency is the ``hinted`` one."""
    names = [f"Step{number}" for number in range(1, len(truths) + 1)]
    steps = [
        step(number, name, (MODULE,), threads=cores, input_step=before, input_module=before and MODULE)
        for number, (name, before) in enumerate(zip(names, (None, *names), strict=False), 1)
    ]
    steps[0] = replace(steps[0], filter_efficiency=hinted)
    seconds = wrong * event_seconds(truths, [(1, cores)] * len(truths), cores)
    per_job = max(int(8 * 3600 / seconds), 1)
    per_lumi = max(min(int(filtered_per_lumi / hinted), per_job), 1)
    workflow = generation_workflow(
        steps=tuple(steps),
        outputs=tuple(output(name, MODULE, f"TIER{number}") for number, name in enumerate(names)),
        resources=ResourceSpec(cores, memory_per_core_mb * cores, seconds, 1000.0),
        generation=GenerationSpec(1, 1, 1, 10**9, per_job, per_lumi),
    )
    return Course(workflow, truths)


def event_seconds(truths: Sequence[StepTruth], layouts: Sequence[tuple[int, int]], cores: int) -> float:
    """Wall seconds for an event that the first step works on."""
    reaching, seconds = 1.0, 0.0
    for truth, (processes, threads) in zip(truths, layouts, strict=True):
        seconds += reaching * truth.cpu_seconds / min(processes * truth.busy(threads), cores)
        reaching *= truth.passes
    return seconds


def spread_of(values: Sequence[float]) -> Spread:
    """As the product takes them from jobs: the nearest rank."""
    ordered = sorted(values)
    return Spread(ordered[len(ordered) // 2], ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)])


def run_round(course: Course, index: int, sizing: Sizing, jobs: int, rng: random.Random) -> tuple[list[StepMeasured], Round]:
    """Simulate the jobs of a round."""
    spec = sizing.workflow
    cores, memory_mb = spec.resources.cores, spec.resources.memory_mb
    events = spec.generation.events_per_job if spec.generation else 0
    read, walls, busy = [events] * jobs, [0.0] * jobs, 0.0
    rows, peaks, layouts, sizes = [], [0.0] * jobs, [], []
    used = 0.0
    for known, truth in zip(spec.steps, course.truths, strict=True):
        run = sizing.profile.steps.get(known.name, StepRun(1, known.threads))
        layouts.append((run.processes, run.threads))
        parallel = min(run.processes * truth.busy(run.threads), cores)
        written = [int(each * truth.passes + rng.random()) for each in read]
        seconds, cpu, rss, slot = [], 0.0, [], []
        for each in read:
            slow = truth.slowness(rng)
            seconds.append(truth.start_seconds + each * truth.cpu_seconds * slow / parallel)
            cpu += each * truth.cpu_seconds * slow + truth.start_seconds * 0.5
            level = truth.base_mb + truth.thread_mb * run.threads + truth.leak_mb_per_hour * seconds[-1] / 3600
            own = [level * exp(rng.gauss(0, truth.spread * 0.5)) for _ in range(run.processes)]
            rss.append(max(own))
            slot.append(sum(own))
        walls = [wall + more for wall, more in zip(walls, seconds, strict=True)]
        peaks = [max(peak, more) for peak, more in zip(peaks, slot, strict=True)]
        used, busy = max(used, spread_of(slot).p95), busy + cpu
        size = int(sum(written) * truth.bytes_per_event)
        sizes.append(size / jobs * sizing.jobs_per_work_unit)
        per_event = [wall / each for wall, each in zip(seconds, read, strict=True) if each] or [0.0]
        rows.append(
            StepMeasured(
                known.name, index, run.processes, run.threads, jobs, sum(read), sum(written), sum(seconds), cpu,
                spread_of(seconds), spread_of(per_event), spread_of(rss), spread_of(slot), {MODULE: size},
            )
        )  # fmt: skip
        read = written
    slots = sum(walls) * cores
    return rows, Round(
        cores, memory_mb, used, sum(peak > memory_mb for peak in peaks) / jobs, events, sum(walls) / jobs,
        sum(wall > MAX_WALL_SECONDS for wall in walls) / jobs, max(sizes), events * jobs / slots * 3600, busy / slots,
        frozenset(f"{d.what}: {d.bound}" for d in sizing.decisions if d.bound), tuple(layouts),
    )  # fmt: skip


def run_course(course: Course, rng: random.Random, rounds: int = ROUNDS, jobs: int = JOBS) -> Course:
    """All rounds of a request: the first by its own figures, one unit; each later one by what all before it measured."""
    measured: list[StepMeasured] = []
    for index in range(rounds):
        sizing = size_round(course.workflow, measured, LIMITS)
        course.outside += outside(course.workflow, sizing)
        rows, done = run_round(course, index, sizing, jobs if index else LIMITS.jobs_per_work_unit, rng)
        measured += rows
        course.rounds.append(done)
    return course


def outside(given: WorkflowSpec, sizing: Sizing, limits: SizingLimits = LIMITS) -> list[str]:
    """What of a sizing is outside its bounds; nothing, if the rules hold."""
    found = []
    for task in sizing.workflow.tasks or (sizing.workflow,):
        cores, memory = task.resources.cores, task.resources.memory_mb
        if not limits.default_memory_per_core_mb * cores <= memory <= limits.max_memory_per_core_mb * cores:
            found.append(f"{memory} MB on {cores} cores")
        if not 1 <= cores <= given.resources.cores:
            found.append(f"{cores} cores")
    for name, run in sizing.profile.steps.items():
        if run.problem() or run.processes > cores or run.processes * run.rss_mb > memory:
            found.append(f"{name} runs as {run}")
        if run.processes * run.threads > max(cores * limits.overcommit_max, cores):
            found.append(f"{name} has {run.processes} x {run.threads} threads on {cores} cores")
    made = sizing.workflow.generation
    if made is not None:
        seconds = made.events_per_job * sizing.workflow.resources.time_per_event_seconds
        if made != given.generation and made.events_per_job % made.events_per_lumi:
            found.append(f"{made.events_per_job} events of {made.events_per_lumi} a lumi")
        if seconds > MAX_WALL_SECONDS and made.events_per_job > made.events_per_lumi and sizing.profile.steps:
            found.append(f"the p95 job takes {seconds:.0f} s")
    if not 1 <= sizing.jobs_per_work_unit <= limits.max_jobs_per_work_unit:
        found.append(f"{sizing.jobs_per_work_unit} jobs to a unit")
    return found


def bounded(done: Round, what: str) -> bool:
    """Whether something named bounds a number."""
    return any(bound.startswith(what) for bound in done.bounds)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Shares of requests, by round."""

    index: int
    wasteful: float  # of those whose memory nothing bounds: more than 20 % unused
    wasteful_guessed: float  # of these and of those whose step ran so for the first time, from what other layouts took
    too_small: float  # likewise: p95 beyond what was asked
    over: float  # mean share of jobs that took more than asked
    off_time: float  # of those not bounded: more than 20 % off the target
    off_size: float
    too_long: float
    efficiency: float
    slower: float  # throughput more than 10 % below the round before
    swung: float  # cores or layouts are back at what an earlier round left


def verdicts(courses: Sequence[Course]) -> list[Verdict]:
    """Of each round."""
    found = []
    for index in range(len(courses[0].rounds)):
        rounds = [course.rounds[index] for course in courses]
        free = [done for done in rounds if not bounded(done, "memory_mb")]
        timed = [done for done in rounds if not bounded(done, "events_per_job")]
        sized = [done for done in rounds if not bounded(done, "jobs_per_work_unit")]
        found.append(
            Verdict(
                index,
                _share(done.waste > 0.20 for done in free),
                _share(done.waste > 0.20 for done in rounds if not bounded(done, "memory_mb") or bounded(done, GUESSED)),
                _share(done.used_mb > done.memory_mb for done in free),
                sum(done.over for done in rounds) / len(rounds),
                _share(abs(done.wall_seconds / TARGET_WALL_SECONDS - 1) > 0.20 for done in timed),
                _share(not 2**31 * 0.8 <= done.merged_bytes <= 2**32 * 1.2 for done in sized),
                sum(done.too_long for done in rounds) / len(rounds),
                sum(done.efficiency for done in rounds) / len(rounds),
                _share(slower(course, index) for course in courses),
                _share(swings(course, index) for course in courses),
            )
        )
    return found


def slower(course: Course, index: int) -> bool:
    """Throughput fell by more than noise since the round before, and no want of memory per core is why."""
    noise = 0.1 + max(truth.spread for truth in course.truths) / 2
    before, after = course.rounds[max(index - 1, 0)], course.rounds[index]
    return after.throughput < (1 - noise) * before.throughput and not bounded(after, "cores: max_memory")


def swings(course: Course, index: int) -> bool:
    """Cores or layouts are back at what a round before the last had."""
    ways = [(done.cores, done.layouts) for done in course.rounds[: index + 1]]
    return index > 1 and ways[index] != ways[index - 1] and ways[index] in ways[: index - 1]


def _share(yes: Iterable[bool]) -> float:
    values = list(yes)
    return sum(values) / max(len(values), 1)


def courses_of(number: int, seed: int = 1) -> list[Course]:
    """Random requests with their rounds, always the same."""
    streams = [random.Random(f"{seed}:{each}") for each in range(number)]  # noqa: S311 - the same requests each time
    return [run_course(random_request(rng), rng) for rng in streams]


def main() -> bool:
    """Print a table and say whether it is good enough."""
    courses = courses_of(int(os.environ.get("BENCH_SIZES") or REQUESTS))
    print(f"{len(courses)} random requests, {ROUNDS} rounds each; shares of requests (of jobs where it says so)")
    heads = (
        "round", "memory > 20 % unused", "and if never run so", "p95 > asked", "jobs > asked", "wall 20 % off",
        "merged size off", "jobs too long", "efficiency", "slower by 10 %", "swung back",
    )  # fmt: skip
    print("  ".join(f"{head:>{max(len(head), 6)}}" for head in heads))
    table = verdicts(courses)
    for row in table:
        shown = [f"{row.index}", *(f"{getattr(row, name):.1%}" for name in Verdict.__slots__[1:])]
        print("  ".join(f"{cell:>{max(len(head), 6)}}" for head, cell in zip(heads, shown, strict=True)))
    misses = missed(courses, table)
    print(f"NOT good enough: {', '.join(misses)}" if misses else "good enough")
    return not misses


def missed(courses: Sequence[Course], table: Sequence[Verdict]) -> list[str]:
    """Aims that are missed: from round 2 on by more than ``MOST_MISSES`` of the requests; any decision outside its bounds."""
    judged = ("wasteful", "too_small", "off_time", "off_size", "swung")
    worst = {name: max(getattr(row, name) for row in table[2:]) for name in judged}
    found = [f"{name} {share:.1%}" for name, share in worst.items() if share > MOST_MISSES]
    if (slow := max(row.slower for row in table)) > MOST_SLOWER:
        found.append(f"slower {slow:.1%}")
    broken = [each for course in courses for each in course.outside]
    return [*found, *(f"{len(broken)} decisions outside their bounds: {each}" for each in broken[:1])]
