"""Jobs that never end, on a real pool: the submit files' own expressions catch them, and the event log says why."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dags_app.payload.contract.layout import IDLE_ATTRIBUTE, SITE_ATTRIBUTE
from dags_app.payload.contract.rules import RuleBook
from dags_app.payload.post.attempts import AttemptFacts, PostCall, evidence_of
from dags_app.payload.post.classify import policy
from dags_app.payload.post.eventlog import JobHistory, job_history
from dags_app.planning.specs import DagLimits
from dags_app.planning.submitfiles import watchdog_lines
from tests.pool import condor
from tests.support.faults import fault
from tests.support.payload_workbench import LIMITS, shipped_rules
from tests.support.side_by_side import PATIENCE

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.skipif(condor.missing() is not None, reason=str(condor.missing()))]

BOOK = RuleBook(shipped_rules(), LIMITS)
SLEEP, SPIN = "sleep 600", "while :; do :; done"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the job owner may write to, as the pool wants it for logs."""
    directory = Path(condor.run("condor_config_val", "LOCAL_DIR").strip()) / "test-dags" / f"watchdogs-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    condor.give(directory)
    yield directory
    shutil.rmtree(directory)


def submit(place: Path, command: str, *, wall: int = 3600, extra: str = "", **limits: int) -> str:
    """One job; its id."""
    text = f"""\
universe = vanilla
executable = /bin/sh
transfer_executable = False
arguments = "-c '{command}'"
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
request_memory = 16
request_disk = 1024
log = cluster.log
ulog_execute_attrs = {SITE_ATTRIBUTE}
{extra}
{watchdog_lines(wall, DagLimits(**{"no_cpu_seconds": 3600, "held_seconds": 3600, **limits}), pinned=True)}queue
"""
    (place / "job.sub").write_text(text)
    condor.give(place)
    return condor.run("condor_submit", "-terse", "job.sub", directory=place).split()[0]


def ended(place: Path, job_id: str) -> JobHistory:
    """What the event log says once the job has left the queue."""
    condor.wait_gone(int(job_id.partition(".")[0]), seconds=120)
    return job_history(place / "cluster.log", job_id, SITE_ATTRIBUTE)


def verdict(place: Path, job_id: str, history: JobHistory) -> tuple[str, str | None]:
    """Category and rule, as a POST script finds them."""
    call = PostCall("proc_000000", -1002, 0, 3, job_id)
    evidence = evidence_of(place, call, AttemptFacts(None, history, "no usable report"), history.site or "")
    found = policy(evidence, BOOK)
    return found.category, found.rule


@fault(
    "watchdog: no CPU",
    done="a job sleeps",
    spec="docs/errors.md, Jobs that never end",
    afterwards="held by its own submit file, removed, the rule knows it",
)
def test_a_job_that_hangs_without_cpu_is_removed_with_that_reason(place: Path) -> None:
    job = submit(place, SLEEP, no_cpu_seconds=10)
    history = ended(place, job)
    assert history.hold_reason is not None and "WMS2: no CPU used in 10 s" in history.hold_reason
    assert (history.hold_code, history.removed_reason is not None) == (3, True)
    assert verdict(place, job, history) == ("infrastructure", "held-no-cpu")


@fault(
    "watchdog: wall clock",
    done="a job runs too long",
    spec="docs/errors.md, Jobs that never end",
    afterwards="held by its own submit file, removed, the rule knows it",
)
def test_a_job_above_the_longest_run_time_is_removed_with_that_reason(place: Path) -> None:
    job = submit(place, SPIN, wall=10)
    history = ended(place, job)
    assert history.hold_reason is not None and "WMS2: ran longer than 10 s" in history.hold_reason
    assert verdict(place, job, history) == ("transient", "held-wall-clock")


@fault(
    "eviction without end",
    done="condor_vacate_job, each time that the job runs",
    spec="docs/errors.md, Jobs that never end",
    afterwards="held after the second start by its own submit file, removed, the rule knows it, evictions counted",
)
def test_a_job_that_is_evicted_each_time_is_removed_with_that_reason(place: Path) -> None:
    job = submit(place, SLEEP, max_starts=2)
    cluster, deadline = job.partition(".")[0], time.monotonic() + 120 * PATIENCE
    while running := condor.run("condor_q", "-all", cluster, "-af", "JobStatus").strip():
        assert time.monotonic() < deadline, "it is started again and again"
        if running == "2":
            with suppress(AssertionError):  # it has been put on hold this moment
                condor.run("condor_vacate_job", "-fast", cluster)
        time.sleep(0.5)
    history = ended(place, job)
    assert history.hold_reason is not None and "WMS2: started 2 times" in history.hold_reason
    # the schedd looks now and then: the third may have begun; one vacated before its payload began is no start in the log
    assert 1 <= history.evictions <= history.starts <= 3 and history.starts >= 2
    assert verdict(place, job, history) == ("infrastructure", "held-started-too-often")


@fault(
    "idle without end",
    done="a job whose site has no slot for it",
    spec="docs/errors.md, Jobs that never end",
    afterwards="held by its own submit file, removed, the rule knows it",
)
def test_a_job_that_waits_too_long_for_its_site_is_removed_with_that_reason(place: Path) -> None:
    job = submit(place, SLEEP, idle_seconds=5, extra="requirements = False")
    history = ended(place, job)
    assert history.hold_reason is not None and "WMS2: idle for 5 s" in history.hold_reason
    assert (history.starts, verdict(place, job, history)) == (0, ("infrastructure", "held-idle"))


@fault(
    "a site that starts nothing",
    done="a job that never began at its site is told to wait no longer, as WMS2 does",
    spec="DD-3",
    afterwards="held and removed within a minute, so that its unit lands elsewhere; one that began before stays",
)
def test_a_job_that_never_began_waits_no_longer_when_it_is_told_so(place: Path) -> None:
    job = submit(place, SLEEP, extra="requirements = False")
    began = submit(place, SLEEP, extra="requirements = False\nMy.NumJobStarts = 1")
    for each in (job, began):
        condor.run("condor_qedit", each.partition(".")[0], IDLE_ATTRIBUTE, "0")
    history = ended(place, job)
    assert history.hold_reason is not None and "WMS2: idle for 0 s" in history.hold_reason
    assert (history.starts, verdict(place, job, history)) == (0, ("infrastructure", "held-idle"))
    assert condor.run("condor_q", "-all", began.partition(".")[0], "-af", "JobStatus").strip() == "1"
    condor.run("condor_rm", began.partition(".")[0])


@fault(
    "held for a missing file",
    done="an input file of a job is missing",
    spec="docs/errors.md, Jobs that never end",
    afterwards="removed after a while, the rule knows the hold reason",
)
def test_a_job_on_hold_for_a_missing_file_is_removed_after_a_while(place: Path) -> None:
    job = submit(place, SLEEP, held_seconds=1, extra=f"transfer_input_files = {place}/absent")
    history = ended(place, job)
    assert history.hold_code == 13
    assert verdict(place, job, history) == ("infrastructure", "held-transfer")


@fault(
    "held by a person",
    done="condor_hold",
    spec="docs/errors.md, Jobs that never end",
    afterwards="it stays",
)
def test_a_job_that_a_person_holds_stays(place: Path) -> None:
    job = submit(place, SLEEP, held_seconds=1)
    cluster = job.partition(".")[0]
    condor.run("condor_hold", cluster)
    time.sleep(15)  # three looks of the schedd
    assert condor.run("condor_q", "-all", cluster, "-af", "JobStatus").strip() == "5"
    condor.run("condor_rm", cluster)
    assert verdict(place, job, ended(place, job)) == ("transient", "removed")
