"""The checks of the verification: pure functions over ``facts``. Each yields what is wrong, in words; nothing means good.

They judge by facts from outside WMS2 wherever there are any: bytes on disk, DBS, Rucio, the schedd, the document.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from deploy.demo.documents import ONLY_STEP
from deploy.demo.facts import (
    Asked,
    CondorJob,
    DagRow,
    DatasetFacts,
    DbsFile,
    EventId,
    Ledger,
    LumiId,
    Planned,
    PoolFacts,
    RequestFacts,
    RootFile,
    RoundRow,
    RucioFile,
    Rule,
)
from deploy.demo.storage import OVER_ROOT

#: So many examples of one problem are shown.
SHOWN = 5
#: Constraints that must stand in the database itself.
CONSTRAINTS = ("one_live_dag_per_workflow", "live_claims_disjoint")
GENERATED_RUN = 1
#: So many rounds an adaptive request is to have.
MIN_ROUNDS = 3


#: What a request goes through in ReqMgr2: others assign and stage it, WMS2 reports, others close it out, announce and archive it.
IN_REQMGR2 = (
    "assigned", "staging", "staged", "acquired", "running-open", "running-closed", "completed",
    "closed-out", "announced", "normal-archived",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table."""

    subject: str
    check: str
    looked_at: str
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.problems


def some(items: Iterable[object]) -> str:
    """A few of them, and how many there are."""
    listed = sorted(map(str, items))
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{len(listed)}: {', '.join(listed[:SHOWN])}{more}"


def same(what: str, here: Iterable[object], there: Iterable[object], names: tuple[str, str]) -> Iterator[str]:
    """Problems when two collections are not the same set, or one lists something twice."""
    left, right = list(here), list(there)
    for name, doubled in ((names[0], _twice(left)), (names[1], _twice(right))):
        if doubled:
            yield f"{what} twice in {name}, {some(doubled)}"
    for name, only in ((names[0], set(left) - set(right)), (names[1], set(right) - set(left))):
        if only:
            yield f"{what} in {name} only, {some(only)}"


def _twice(items: Iterable[object]) -> list[object]:
    return [item for item, count in Counter(items).items() if count > 1]


# --- events --------------------------------------------------------------------------------------------------------------


def planned_events(planned: Iterable[Planned]) -> list[EventId]:
    """Every event that the jobs were to generate, with the lumi it must be in."""
    return [
        (job.run, job.first_lumi + (event - job.first_event) // job.events_per_lumi, event)
        for job in planned
        for event in range(job.first_event, job.last_event + 1)
    ]


def plan_as_asked(asked: Asked, planned: Sequence[Planned], lost_numbers: int) -> Iterator[str]:
    """The plan covers the document's numbers: run 1, every event from the first on once, lumis from the first on.

    Where work was lost for good its numbers are not used again: then only the count must agree.
    """
    if asked.numbers is None:
        return
    first, count, first_lumi = asked.numbers
    events = planned_events(planned)
    numbers = [event for _, _, event in events]
    if _twice(numbers):
        yield f"event numbers planned twice, {some(_twice(numbers))}"
    if not lost_numbers:
        yield from same("event numbers", numbers, range(first, first + count), ("the plan", "the document"))
    elif len(set(numbers)) != count:
        yield f"{len(set(numbers))} events were planned and done, {count} are asked for"
    runs = {run for run, _, _ in events} - {GENERATED_RUN}
    if runs:
        yield f"generated runs other than {GENERATED_RUN}: {some(runs)}"
    if events and not lost_numbers:
        lumis = {lumi for _, lumi, _ in events}
        yield from same("lumis", lumis, range(first_lumi, first_lumi + len(lumis)), ("the plan", "a row from FirstLumi on"))


def events_once(expected: Iterable[EventId], files: Iterable[RootFile], share: float = 1.0) -> Iterator[str]:
    """Every expected event is in exactly one place of the files, and nothing else is there.

    Args:
        expected: (run, lumi, event) of each event that must be there.
        files: the opened merged files of one dataset.
        share: below 1 events may be missing.
    """
    wanted = set(expected)
    found = Counter(event for file in files for event in file.events)
    doubled = [event for event, count in found.items() if count > 1]
    missing, extra = wanted - found.keys(), found.keys() - wanted
    if doubled:
        yield f"events more than once, {some(doubled)}"
    if missing and share >= 1.0:
        yield f"events missing, {some(missing)}"
    elif wanted and not found:
        yield "no event at all"
    if extra:
        yield f"events that were not asked for (or in another lumi), {some(extra)}"


def lumis_kept(expected: Iterable[LumiId], files: Iterable[RootFile]) -> Iterator[str]:
    """The files hold exactly the expected lumis, empty ones included."""
    return same("lumis", {lumi for file in files for lumi in file.lumis}, set(expected), ("the files", "the plan"))


# --- bytes and catalogues ------------------------------------------------------------------------------------------------


def bytes_as_declared(on_disk: Iterable[RootFile], rucio: Iterable[RucioFile]) -> Iterator[str]:
    """Every replica that Rucio knows can be opened and has the declared size and adler32."""
    opened = {(file.lfn, file.rse): file for file in on_disk}
    yield from (f"{file.lfn}: {file.problem}" for file in opened.values() if file.problem)
    for known in {file.lfn: file for file in rucio}.values():
        if not known.pfns:
            yield f"{known.lfn}: Rucio has no available replica"
        for rse in known.pfns:
            file = opened.get((known.lfn, rse))
            if file is None:
                yield f"{known.lfn} at {rse}: was not looked at"
            elif not file.problem and (file.size_bytes, file.adler32) != (known.size_bytes, known.adler32):
                disk, declared = (f"{each.size_bytes} bytes, adler32 {each.adler32}" for each in (file, known))
                yield f"{known.lfn} at {rse}: {disk} on disk; {declared} in Rucio"


def dbs_as_on_disk(on_disk: Sequence[RootFile], dbs: Sequence[DbsFile]) -> Iterator[str]:
    """DBS lists exactly the files on disk, with their sizes, sums, events and lumis."""
    files = {file.lfn: file for file in on_disk}
    yield from same("files", files, [file.lfn for file in dbs], ("storage", "DBS"))
    for known in dbs:
        file = files.get(known.lfn)
        if file is None or file.problem:
            continue
        counts: dict[LumiId, int] = dict.fromkeys(file.lumis, 0) | dict(Counter((run, lumi) for run, lumi, _ in file.events))
        for what, disk, listed in (
            ("bytes", file.size_bytes, known.size_bytes),
            ("adler32", file.adler32, known.adler32),
            ("events", len(file.events), known.events),
            ("lumis", sorted(counts), sorted(known.lumis)),
        ):
            if disk != listed:
                yield f"{known.lfn}: {what} {disk} on disk, {listed} in DBS"
        wrong = [lumi for lumi, events in known.lumis.items() if events is not None and counts.get(lumi) not in (None, events)]
        if wrong:
            yield f"{known.lfn}: DBS has other event counts for lumis, {some(wrong)}"
        if not known.is_valid:
            yield f"{known.lfn}: not valid in DBS"


def parents_known(dataset: DatasetFacts, input_dataset: str) -> Iterator[str]:
    """What a request without steps read is a parent of its output in DBS, and files of it are parents of each file."""
    if input_dataset not in dataset.parents:
        yield f"{input_dataset} is no parent of it in DBS"
    yield from (f"{file.lfn}: no parent in DBS" for file in dataset.dbs_files if not file.parents)


def blocks_agree(dataset: DatasetFacts) -> Iterator[str]:
    """DBS and Rucio have the same blocks with the same files; all closed, with an origin site that holds files of it."""
    sides = ("DBS", "Rucio")
    if not dataset.in_dbs:
        yield f"{dataset.name} is not in DBS"
    if not dataset.dbs_blocks:
        yield "there is no block"
    yield from same("blocks", (b.name for b in dataset.dbs_blocks), (b.name for b in dataset.rucio_blocks), sides)
    in_dbs, in_rucio = (((f.block, f.lfn) for f in files) for files in (dataset.dbs_files, dataset.rucio_files))
    yield from same("files of blocks", in_dbs, in_rucio, sides)
    yield from (f"{block.name} is still open in DBS" for block in dataset.dbs_blocks if block.is_open)
    yield from (f"{block.name} is still open in Rucio" for block in dataset.rucio_blocks if block.is_open)
    for block in dataset.dbs_blocks:
        files = [file for file in dataset.rucio_files if file.block == block.name]
        if block.origin_site not in {rse for file in files for rse in file.pfns}:
            yield f"{block.name}: origin site {block.origin_site or 'not set'} holds no file of it"
        if (block.file_count, block.size_bytes) != (len(files), sum(file.size_bytes for file in files)):
            yield f"{block.name}: DBS counts {block.file_count} files, {block.size_bytes} bytes; Rucio has others"


def files_protected(files: Iterable[RucioFile], rules: Sequence[Rule], tape_rses: frozenset[str]) -> Iterator[str]:
    """Each file has exactly one rule, its own or its block's, at the one RSE where it lies, and the rule is OK."""
    for file in files:
        mine = [rule for rule in rules if rule.name in (file.lfn, file.block) and rule.rse_expression not in tape_rses]
        if len(mine) != 1:
            yield f"{file.lfn}: {len(mine)} rules, expected one"
        for rule in mine:
            if set(file.pfns) != {rule.rse_expression}:
                yield f"{file.lfn}: protected at {rule.rse_expression}, lies at {sorted(file.pfns)}"
            if rule.state != "OK":
                yield f"{file.lfn}: its rule {rule.rule_id} is {rule.state}"


def tape_as_wanted(dataset: DatasetFacts, tape_rses: frozenset[str]) -> Iterator[str]:
    """One rule on tape per block, and all blocks of the dataset on the same tape; no rule on the container."""
    on_tape = [rule for rule in dataset.rules if rule.rse_expression in tape_rses]
    for block in dataset.rucio_blocks:
        mine = [rule for rule in on_tape if rule.name == block.name]
        if len(mine) != 1:
            yield f"{block.name}: {len(mine)} rules on tape, expected one"
        for rule in mine:
            if rule.copies != 1 or rule.state not in ("OK", "REPLICATING"):
                yield f"{block.name}: its rule {rule.rule_id} is {rule.state} with {rule.copies} copies"
    on_blocks = {rule.rse_expression for rule in on_tape if rule.name in {b.name for b in dataset.rucio_blocks}}
    if len(on_blocks) > 1:
        yield f"scattered over {some(on_blocks)}"
    if any(rule.name == dataset.name for rule in dataset.rules):
        yield "there is a rule on the whole dataset"


# --- WMS2 itself ---------------------------------------------------------------------------------------------------------


def one_job_per_dag(dags: Iterable[DagRow], jobs: Sequence[CondorJob]) -> Iterator[str]:
    """A submitted DAG row has exactly one DAGMan job, in the queue or the history, an unsubmitted one none; all have ended."""
    for dag in dags:
        mine = [job for job in jobs if job.dag_id == dag.dag_id]
        wanted = [dag.cluster] if dag.cluster else []
        if [str(job.cluster) for job in mine] != wanted:
            yield f"DAG {dag.dag_id}: jobs {[job.cluster for job in mine]} at the schedd, the row says {wanted}"
        if dag.is_live:
            yield f"DAG {dag.dag_id} is still {dag.status}"
        yield from (f"DAG {dag.dag_id}: job {job.cluster} is still queued" for job in mine if job.job_status not in (3, 4))


def no_stray_jobs(dags: Iterable[DagRow], jobs: Iterable[CondorJob]) -> Iterator[str]:
    """Every DAGMan job of this instance belongs to a DAG row."""
    known = {dag.dag_id for dag in dags}
    orphans = [job.cluster for job in jobs if job.dag_id not in known]
    if orphans:
        yield f"DAGMan jobs that no DAG row knows, {some(orphans)}"


def rounds_measured(rounds: Sequence[RoundRow]) -> Iterator[str]:
    """There are several; jobs of each reported what they took, and the next one asks for something else."""
    if len(rounds) < MIN_ROUNDS:
        yield f"{len(rounds)} rounds, expected {MIN_ROUNDS} or more"
    yield from (f"round {index}: no job was measured" for index, row in enumerate(rounds) if not row.measured)
    for index, (before, after) in enumerate(pairwise(rounds), start=1):
        if before.sizes == after.sizes:
            yield f"round {index} is sized as the one before"


def rounds_converged(last: RoundRow, merge_bytes: tuple[int, int]) -> Iterator[str]:
    """Memory is at most 25 % above what jobs take, or at the window's floor; their time is within 20 % of its target, and so are
    merged files."""
    if not last.memory_fits():
        yield f"the last round asked for {last.memory_mb} MB and took {last.used_mb:.0f} MB"
    if not last.time_fits():
        yield f"jobs of the last round were {last.off_target:+.0%} off the time that they should take"
    if not last.size_fits(merge_bytes):
        yield f"units of the last round wrote {some(last.merged)} bytes, and should write {merge_bytes[0]} to {merge_bytes[1]}"


def rounds_swing(rounds: Sequence[RoundRow]) -> Iterator[str]:
    """Cores and layouts that a round left do not come back. Three rounds, as the demo has, can show one such way and no more;
    ``bench/adaptive.py`` has four."""
    ways = [(row.cores, row.layouts) for row in rounds]
    for index in range(2, len(ways)):
        if ways[index] != ways[index - 1] and ways[index] in ways[: index - 1]:
            yield f"round {index} has {ways[index][0]} cores {ways[index][1]} as one before the last"


def throughput_falls(rounds: Sequence[RoundRow]) -> Iterator[str]:
    """Events per core-hour fall by 10 % at most, or by twice what so few jobs make of the scatter that rounds have shown.

    A round of one job shows none, so that it is the largest of all rounds.
    """
    scatter = max((row.scatter for row in rounds), default=0.0)
    for index, (before, after) in enumerate(pairwise(rounds), start=1):
        noise = 2 * scatter * math.sqrt(sum(1 / max(row.measured, 1) for row in (before, after)))
        if after.throughput < (1 - max(0.1, noise)) * before.throughput:
            yield f"round {index} did {after.throughput:.1f} events per core-hour, the one before {before.throughput:.1f}"


def ledger_adds_up(ledger: Ledger) -> Iterator[str]:
    """All work is done or excluded by name, nothing is planned, left or counted twice."""
    if ledger.violation:
        yield ledger.violation
    if ledger.done + ledger.excluded != ledger.all or ledger.planned or ledger.left:
        closed = f"{ledger.done} {ledger.unit} done + {ledger.excluded} excluded of {ledger.all}"
        yield f"{closed}, {ledger.planned} planned, {ledger.left} left"
    if not ledger.all:
        yield f"there were no {ledger.unit} to do"


# --- all of them ---------------------------------------------------------------------------------------------------------


def judge(requests: Sequence[RequestFacts], pool: PoolFacts) -> list[Verdict]:
    """All checks of all requests, and those of the whole."""
    verdicts = [verdict for request in requests for verdict in judge_request(request, pool)]
    dags = [dag for request in requests for dag in request.dags]
    missing = sorted(set(CONSTRAINTS) - pool.constraints)
    verdicts += [
        Verdict("all", "requests", f"{len(requests)} requests", () if requests else ("there is no request",)),
        Verdict("all", "unmerged files gone", "storage", (f"left over, {some(pool.unmerged)}",) if pool.unmerged else ()),
        Verdict("all", "no orphan DAGMan job", f"{len(pool.jobs)} jobs", tuple(no_stray_jobs(dags, pool.jobs))),
        Verdict("all", "no forgotten request", "logs", pool.forgotten),
        Verdict("all", "constraints in the database", ", ".join(CONSTRAINTS), (f"missing: {missing}",) if missing else ()),
    ]
    return verdicts


def judge_request(request: RequestFacts, pool: PoolFacts) -> Iterator[Verdict]:
    """The checks of one request and of each of its output datasets."""
    generated = request.asked.numbers is not None
    expected = planned_events(request.planned) if generated else list(request.input_events)
    lumis = {(run, lumi) for run, lumi, _ in expected} | request.input_lumis

    def verdict(check: str, looked_at: str, problems: Iterable[str]) -> Verdict:
        return Verdict(request.name, check, looked_at, tuple(problems))

    status = [] if request.status == "completed" else [f"is {request.status}"]
    open_ends = [f"not done: {what}" for what in (*request.open_effects, *request.units_not_done)]
    outputs = same("steps", set(request.dataset_steps), request.asked.steps_kept, ("the output datasets", "the document"))
    ledger = request.ledger
    yield verdict("completed, no effect open, no unit open", request.status, [*status, *open_ends])
    yield verdict("every kept step has outputs", f"{len(request.datasets)} datasets", outputs)
    yield verdict("ledger", f"{ledger.done} of {ledger.all} {ledger.unit}", ledger_adds_up(ledger))
    yield verdict("one DAGMan job per DAG", f"{len(request.dags)} DAGs", one_job_per_dag(request.dags, pool.jobs))
    if request.rounds:
        sizes = ", ".join("{} cores {} MB {} events".format(*row.sizes) for row in request.rounds)
        yield verdict("rounds sized by what was measured", sizes, rounds_measured(request.rounds))
        last = request.rounds[-1]
        took = f"asked {last.memory_mb} MB, took {last.used_mb:.0f} MB; {last.off_target:+.0%} off the time of a job"
        took = f"{took}; merged {', '.join(f'{size / 1e6:.1f}' for size in last.merged)} MB"
        yield verdict("rounds converged", took, rounds_converged(last, request.asked.merge_bytes))
        course = ", ".join(f"{row.throughput:.1f} events per core-hour as {row.cores}: {row.layouts}" for row in request.rounds)
        steady = chain(rounds_swing(request.rounds), throughput_falls(request.rounds))
        yield verdict("rounds neither swing nor slow down", course, steady)
    if there := request.reqmgr2_statuses:
        wrong = [] if there[-len(IN_REQMGR2) :] == IN_REQMGR2 else [f"it is {' > '.join(there)} there"]
        yield verdict("ReqMgr2: assigned to archived", " > ".join(IN_REQMGR2), wrong)
    if generated:
        problems = plan_as_asked(request.asked, request.planned, request.lost_numbers)
        yield verdict("the plan is the document's", f"{len(expected)} events", problems)
    else:
        empty = [] if expected else [f"{request.asked.input_dataset}: no event is wanted of it"]
        yield verdict("input files", f"{len(expected)} events", [*request.input_problems, *empty])
        if request.input_over_root:
            unread = [f"the server gave no client {lfn}" for lfn, read in request.input_over_root.items() if not read]
            yield verdict("input read over root://", f"{len(request.input_over_root)} files", unread)
    for dataset in request.datasets:
        yield from judge_dataset(dataset, expected, lumis, request.asked.share, pool.tape_rses)
        if request.asked.input_dataset and request.asked.steps_kept == (ONLY_STEP,):
            problems = parents_known(dataset, request.asked.input_dataset)
            yield Verdict(dataset.name, "parents in DBS", request.asked.input_dataset, tuple(problems))


def judge_dataset(
    dataset: DatasetFacts, expected: Sequence[EventId], lumis: Iterable[LumiId], share: float, tape_rses: frozenset[str]
) -> Iterator[Verdict]:
    """The checks of one output dataset."""
    disk, dbs, rucio = dataset.on_disk, dataset.dbs_files, dataset.rucio_files
    over = " over root://" if any(file.path.startswith(OVER_ROOT) for file in disk) else ""
    files, events, size = len(disk), sum(len(file.events) for file in disk), sum(file.size_bytes for file in disk)
    unregistered = [f"on disk, unknown to Rucio: {path}" for path in dataset.unregistered]
    for check, looked_at, problems in (
        ("every event once", f"{events} events in {files} files", events_once(expected, disk, share)),
        ("lumis as planned", f"{files} files", lumis_kept(lumis, disk)),
        ("bytes as declared", f"{size} bytes{over}", chain(bytes_as_declared(disk, rucio), unregistered)),
        ("read by a job of WMCore's", f"{files} files", [dataset.refused] if dataset.refused else []),
        ("DBS as on disk", f"{len(dbs)} files", dbs_as_on_disk(disk, dbs)),
        ("blocks closed, the same in DBS and Rucio", f"{len(dataset.dbs_blocks)} blocks", blocks_agree(dataset)),
        ("files protected", f"{len(rucio)} files", files_protected(rucio, dataset.rules, tape_rses)),
        ("one tape rule per block", f"{len(dataset.rucio_blocks)} blocks", tape_as_wanted(dataset, tape_rses)),
    ):
        yield Verdict(dataset.name, check, looked_at, tuple(problems))
