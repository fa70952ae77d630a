"""Units of one DAG, each with a fault of its own: what is done to it, and what must be true of it when the DAG has ended.

Owns the per-node part of the fault catalogue. Bringing the faults about in jobs is ``failing_payload.py``'s, running the DAG
``test_failing_nodes.py``'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dags_app import dagman
from tests.pool import condor
from tests.support.payload_schemas import validate

#: What a job asks for at first.
MEMORY_MB = 64
PROC = "proc_000000"
#: Set for every job of the DAG, so that a hanging one is found soon; the others are done long before.
NO_CPU_SECONDS = 25


@dataclass(frozen=True)
class Unit:
    """One unit of the DAG, by what it left in its directory."""

    directory: Path
    number: int

    @property
    def name(self) -> str:
        """Its node in the outer DAG."""
        return f"mg_{self.number:06d}"

    @property
    def place(self) -> Path:
        """Its directory."""
        return self.directory / self.name

    @property
    def done(self) -> bool:
        """Whether DAGMan counts it as done."""
        status = dagman.read_status(self.directory / "workflow.dag.status")
        assert status is not None
        return self.name in status.done_nodes()

    def starts(self, node: str = PROC) -> list[tuple[str, int]]:
        """(site, memory in MB) of each start of a node."""
        log = self.place / "starts.log"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [(site, int(memory)) for name, _, site, memory in lines if name == node]

    def memory(self) -> list[int]:
        """What each start of the processing node asked for."""
        return [memory for _, memory in self.starts()]

    def record(self, node: str = PROC) -> dict[str, Any]:
        """The verdict on its last attempt."""
        found: dict[str, Any] = json.loads((self.place / f"{node}.post.json").read_text())
        validate("post", found)
        return found

    def failures(self) -> list[tuple[str, int, str]]:
        """(node, code, category) of each failed attempt, in order, as WMS2 reads them."""
        found = []
        for text in (self.directory / "failures.jsonl").read_text().splitlines():
            line = json.loads(text)
            validate("failure", line)
            if line["unit"] == self.name:
                found.append((line["node"], line["code"], line["category"]))
        return found

    def codes(self) -> list[int]:
        """Codes of its failed attempts."""
        return [code for _, code, _ in self.failures()]

    @property
    def landings(self) -> int:
        """How many landing jobs have left the queue."""
        return len(condor.history(f'{_ours(self)} && WMS2_Role == "landing"'))


@dataclass(frozen=True)
class UnitFault:
    """A fault of one unit. ``before`` prepares its directory, ``meanwhile`` acts once while the DAG runs, when it can (True)."""

    name: str
    done: str
    afterwards: str
    check: Callable[[Unit], None]
    plan: dict[str, str] = field(default_factory=dict)
    spec: str = "error-handling 2.4"
    before: Callable[[Unit], None] | None = None
    meanwhile: Callable[[Unit], bool] | None = None


def once_more(code: int, category: str = "transient", *, node: str = PROC) -> Callable[[Unit], None]:
    """One attempt failed with this code, the next did well, the unit is done."""

    def check(unit: Unit) -> None:
        assert unit.failures() == [(node, code, category)]
        assert len(unit.starts(node)) == 2
        assert unit.done

    return check


def given_up(code: int, category: str) -> Callable[[Unit], None]:
    """One attempt, never repeated; nothing after it ran; the unit failed."""

    def check(unit: Unit) -> None:
        assert unit.failures() == [(PROC, code, category)]
        verdict = unit.record()
        assert (verdict["final"], verdict["classification"]["category"]) == (True, category)
        assert verdict["classification"]["bad_input_files"] == []
        assert (len(unit.starts()), unit.starts("merge"), unit.done) == (1, [], False)

    return check


def bad_at_both(code: int) -> Callable[[Unit], None]:
    """One attempt at each of two sites, which name the same input file; nothing after them ran; the unit failed."""

    def check(unit: Unit) -> None:
        assert unit.failures() == [(PROC, code, "data")] * 2
        verdict = unit.record()
        assert (verdict["final"], verdict["classification"]["category"]) == (True, "data")
        assert verdict["classification"]["bad_input_files"] == [_input_of(unit)]
        first, second = [site for site, _ in unit.starts()]
        assert first != second, "a file that one site cannot read is tried where another replica is"
        assert (unit.starts("merge"), unit.done) == ([], False)

    return check


def _input_of(unit: Unit) -> str:
    lfn: str = json.loads((unit.place / "unit.json").read_text())["jobs"][0]["files"][0]["lfn"]
    return lfn


def _healthy(unit: Unit) -> None:
    assert (unit.failures(), unit.done) == ([], True)
    assert [len(unit.starts(node)) for node in (PROC, "merge", "cleanup")] == [1, 1, 1]


def _more_memory(unit: Unit) -> None:
    assert unit.memory() == [MEMORY_MB, MEMORY_MB * 3 // 2]
    assert len(unit.codes()) == 1
    assert unit.done


def _elsewhere(unit: Unit) -> None:
    first, second, third = [site for site, _ in unit.starts()]
    assert first == second != third, "once more there, then elsewhere"
    assert f"UNIT_AVOID = {first}\n" == (unit.place / "avoid.inc").read_text()
    assert unit.done


def _merge_given_up(unit: Unit) -> None:
    assert [len(unit.starts(node)) for node in (PROC, "merge", "cleanup")] == [1, 3, 0]
    assert unit.failures() == [("merge", 95004, "transient")] * 3
    assert (unit.record("merge")["final"], unit.done) == (True, False)


def _cleanup_counts_for_nothing(unit: Unit) -> None:
    assert (len(unit.starts("cleanup")), unit.failures(), unit.done) == (1, [], True)


def _no_room_for_the_election(unit: Unit) -> None:
    (unit.place / "elected.log").symlink_to("/dev/full")


def _never_landed(unit: Unit) -> None:
    assert (unit.landings, unit.starts(), unit.done) == (4, [], False)


def _nowhere_to_land(unit: Unit) -> None:
    (unit.place / "avoid.inc").write_text("UNIT_AVOID = T1_US_FNAL,T2_CH_CERN,T2_US_Purdue\n")
    condor.give(unit.place)


def _remove_landing(unit: Unit) -> bool:
    jobs = _jobs(unit, 'WMS2_Role == "landing"')
    if jobs:
        (unit.place / "avoid.inc").write_text("UNIT_AVOID =\n")
        condor.run("condor_rm", *jobs)
    return bool(jobs)


def _landed_again(unit: Unit) -> None:
    assert unit.landings == 2
    assert (len(unit.starts()), unit.done) == (1, True)


def _unreadable_submission(unit: Unit) -> None:
    (unit.place / "memory.inc").write_text(f"MEMORY_{PROC} = 64 64 (\n")


def _not_submitted(unit: Unit) -> None:
    assert unit.failures() == [(PROC, 95010, "infrastructure")], "DAGMan tries six times by itself, and then no more"
    assert (unit.record()["final"], unit.starts(), unit.done) == (True, [], False)


def _remove_inner_dagman(unit: Unit) -> bool:
    if not unit.starts():
        return False
    condor.run("condor_rm", *_jobs(unit, "JobUniverse == 7"))
    return True


def _only_that_unit_is_gone(unit: Unit) -> None:
    assert (len(unit.starts()), unit.starts("merge"), unit.done) == (1, [], False)
    metrics = dagman.read_metrics(unit.place / "group.dag.metrics")
    assert metrics is not None
    assert metrics.outcome is dagman.DagOutcome.REMOVED
    assert dagman.newest_rescue(unit.place / "group.dag") is not None, "it can go on from there"


def _no_room_for_verdicts(unit: Unit) -> None:
    (unit.place / f"{PROC}.attempts.jsonl").symlink_to("/dev/full")


def _never_taken_for_done(unit: Unit) -> None:
    assert len(unit.starts()) == 4, "tried until the retries were used up"
    assert (unit.starts("merge"), unit.done) == ([], False)
    assert not (unit.place / f"{PROC}.post.json").exists()
    assert "No space left on device" in (unit.place / "scripts.log").read_text()


def _jobs(unit: Unit, constraint: str) -> list[str]:
    return condor.run("condor_q", "-all", "-constraint", f"{_ours(unit)} && ({constraint})", "-af", "ClusterId").split()


def _ours(unit: Unit) -> str:
    return f'WMS2_DagID == "{unit.directory.name}" && WMS2_Unit == "{unit.name}"'


UNIT_FAULTS = (
    UnitFault("nothing", "nothing at all", "one attempt of each node, the unit is done", _healthy),
    UnitFault("exit 1", "the job ends with 1", "transient: tried again, then done", once_more(1), {PROC: "code 1"}),
    UnitFault(
        "8021 with a bad file",
        "cmsRun cannot read an input file and names it",
        "data: 42, once more at another site, there the same; the file recorded by name for each site, no merge",
        bad_at_both(8021),
        {PROC: "bad 8021\nbad 8021"},
    ),
    UnitFault(
        "skipped input, exit 0",
        "cmsRun skips its input file and ends with 0",
        "never done: 42, once more at another site, there the same; the file recorded by name, no merge",
        bad_at_both(95003),
        {PROC: "skipped\nskipped"},
        spec="docs/design/model.md, Exit codes",
    ),
    UnitFault(
        "50660",
        "the job uses too much memory",
        "this node alone gets half as much again, then done",
        _more_memory,
        {PROC: "code 50660"},
    ),
    UnitFault(
        "65", "a wrong configuration", "permanent: 42, not repeated, no merge", given_up(65, "permanent"), {PROC: "code 65"}
    ),
    UnitFault("SIGKILL", "the job kills itself, no report", "137, more memory, then done", _more_memory, {PROC: "kill"}),
    UnitFault(
        "hang without CPU",
        f"the job sleeps; the watchdog takes {NO_CPU_SECONDS} s",
        "held and removed, the reason known, then done",
        once_more(95103, "infrastructure"),
        {PROC: "hang"},
        spec="docs/errors.md, Jobs that never end",
    ),
    UnitFault(
        "held",
        "HTCondor holds the job: its output cannot be sent back",
        "removed after a while, the reason known, then done",
        once_more(95112, "infrastructure"),
        {PROC: "held"},
        spec="docs/errors.md, Jobs that never end",
    ),
    UnitFault(
        "a fault of the site",
        "stage-out fails twice (60311)",
        "the unit leaves the site and is done elsewhere",
        _elsewhere,
        {PROC: "site:code 60311\nsite:code 60311"},
    ),
    UnitFault(
        "truncated report",
        "half a report comes back",
        "no success: 99303, tried again, then done",
        once_more(99303),
        {PROC: "torn 0"},
        spec="error-handling 2.3",
    ),
    UnitFault(
        "missing report",
        "the job ends with 0 and leaves no report",
        "no success: 99303, tried again, then done",
        once_more(99303),
        {PROC: "lost 0"},
        spec="error-handling 2.3",
    ),
    UnitFault(
        "disk full on the worker node",
        "writing fails with ENOSPC, also of the report",
        "infrastructure: tried again, then done",
        once_more(99303, "infrastructure"),
        {PROC: "full"},
        spec="docs/errors.md, A full disk",
    ),
    UnitFault(
        "disk full on the submit host",
        "the POST script cannot write its verdicts (ENOSPC)",
        "a job that did well never passes for done; the unit fails",
        _never_taken_for_done,
        before=_no_room_for_verdicts,
        spec="docs/errors.md, A full disk",
    ),
    UnitFault(
        "landing removed",
        "the landing job is removed from the queue",
        "the unit lands again and is done",
        _landed_again,
        before=_nowhere_to_land,
        meanwhile=_remove_landing,
        spec="ADR 0005",
    ),
    UnitFault(
        "landing fails",
        "the site cannot be recorded, each time",
        "four landings, then the unit fails; no job of it ran",
        _never_landed,
        before=_no_room_for_the_election,
        spec="ADR 0005",
    ),
    UnitFault(
        "merge fails once",
        "the merge command fails",
        "transient: merged again, processing not repeated",
        once_more(95004, node="merge"),
        {"merge": "code 95004"},
        spec="error-handling 2.6",
    ),
    UnitFault(
        "merge fails for good",
        "the merge command fails each time",
        "the unit fails, processing is not repeated, no cleanup",
        _merge_given_up,
        {"merge": "code 95004\n" * 3},
        spec="error-handling 2.6",
    ),
    UnitFault(
        "missing manifest",
        "the merge ends with 0 and leaves no manifest",
        "no success: 95011, merged again",
        once_more(95011, node="merge"),
        {"merge": "no-manifest"},
        spec="docs/design/model.md, A unit is done",
    ),
    UnitFault(
        "corrupt manifest",
        "the merge leaves half a manifest",
        "no success: 95011, merged again",
        once_more(95011, node="merge"),
        {"merge": "torn-manifest"},
        spec="docs/design/model.md, A unit is done",
    ),
    UnitFault(
        "a manifest of another job",
        "the manifest names another merge job",
        "no success: 95011, merged again",
        once_more(95011, node="merge"),
        {"merge": "old-manifest"},
        spec="docs/design/model.md, A unit is done",
    ),
    UnitFault(
        "cleanup fails",
        "the cleanup job fails",
        "the unit is done all the same",
        _cleanup_counts_for_nothing,
        {"cleanup": "code 95007"},
        spec="docs/design/model.md, Failed units",
    ),
    UnitFault(
        "a node is not submitted",
        "the schedd refuses the job's submission",
        "95010, infrastructure: nothing ran, the unit fails, a rescue begins with this node",
        _not_submitted,
        before=_unreadable_submission,
        spec="docs/design/model.md, Exit codes",
    ),
    UnitFault(
        "an inner DAGMan is removed",
        "condor_rm of one unit's DAGMan",
        "that unit alone is not done, its rescue file is there",
        _only_that_unit_is_gone,
        {PROC: "hang"},
        spec="docs/design/model.md, Failed units",
        meanwhile=_remove_inner_dagman,
    ),
)
