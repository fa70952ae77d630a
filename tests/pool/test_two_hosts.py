"""Two control hosts, each with a worker and a beat of its own: the one that leads is lost in the middle of the work.

It is killed, paused, or cut off from database and broker while neither end is told. A network namespace of its own would not cut
it off: the stack's database and broker are reached by sockets of the file system, so its ways to them are stalled instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from dags_app.models import DAG
from outputs_app.models import Effect, EffectState
from requests_app.models import LEADER_LEASE, Lease, RequestStatus
from tests.support.faults import fault
from tests.support.outcomes import assert_completed_once, ended, imported, status
from tests.support.side_by_side import PATIENCE
from tests.support.stack import Worker, celery_beat, celery_worker
from tests.support.stalling import Stalling, stalling_ways
from tests.support.waiting import until
from wms2.conf import Conf
from wms2.models import AuditEntry
from wms2.runtime import clock

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
#: As in production; what others of the stack's settings make quicker stays so. A beat calls every two seconds, not every one.
DEFAULTS = {
    "WMS2_CYCLE_SECONDS": "2",
    **{f"WMS2_{name.upper()}": str(Conf.model_fields[name].default) for name in ("lease_seconds", "service_timeout_seconds")},
}
PROMISED_SECONDS = 60.0
LEADERS = "tests/requests_app/lifecycle/test_leader_faults.py"


@dataclass(frozen=True, slots=True)
class Host:
    """The processes of one, and its ways to database and broker where it is to be cut off from them."""

    name: str
    processes: tuple[Worker, Worker]
    ways: tuple[Stalling, ...]

    def killed(self) -> None:
        for process in self.processes:
            process.kill()

    def paused(self) -> None:
        for process in self.processes:
            process.pause()

    def cut_off(self) -> None:
        for way in self.ways:
            way.stall()

    def back(self) -> None:
        """However it was lost; a killed one stays so."""
        for process in self.processes:
            if not process.was_killed:
                process.resume()
        for way in self.ways:
            way.go_on()


@contextmanager
def host(name: str, directory: Path, *, ways_of_its_own: bool) -> Iterator[Host]:
    """For the length of the block."""
    directory.mkdir()
    settings, ways = DEFAULTS, tuple[Stalling, ...]()
    with ExitStack() as running:
        if ways_of_its_own:
            *both, there = running.enter_context(stalling_ways(directory))
            settings, ways = settings | there, tuple(both)
        worker = running.enter_context(celery_worker(name, **settings))
        beat = running.enter_context(celery_beat(directory, WMS2_NODE=name, **settings))
        made = Host(name, (worker, beat), ways)
        running.callback(made.back)
        yield made


def leader() -> str:
    return Lease.objects.values_list("owner", flat=True).get(name=LEADER_LEASE)


def leads_since() -> datetime:
    at = Lease.objects.values_list("acquired_at", flat=True).get(name=LEADER_LEASE)
    assert at is not None
    return at


@fault(
    "control host lost",
    done="all of the host that leads is killed, paused, or cut off from database and broker in the middle of a submission",
    spec="docs/design/control.md, Leader; ADR 0013",
    afterwards="the other host leads within a minute; whatever the first one still does changes nothing; COMPLETED once",
)
@pytest.mark.dear("a host that goes on after it was replaced is what could do everything twice")
@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(Host.paused, id="paused"),
        pytest.param(
            Host.killed,
            id="killed",
            marks=pytest.mark.deep(f"{LEADERS}::test_a_killed_leader_is_replaced_at_once_by_another_process_of_its_node"),
        ),
        pytest.param(
            Host.cut_off,
            id="cut-off",
            marks=pytest.mark.deep(
                f"{LEADERS}::test_a_leader_that_is_cut_off_is_replaced_and_does_nothing_when_the_way_is_open_again"
            ),
        ),
    ],
)
def test_when_the_host_that_leads_is_lost_the_other_leads_within_a_minute_and_nothing_is_done_twice(
    ready: None, tmp_path_factory: pytest.TempPathFactory, lost: object
) -> None:
    place = tmp_path_factory.mktemp("h")  # a socket's path must be short
    requests = [imported(events=20)]
    cut = lost is Host.cut_off
    with host("a", place / "a", ways_of_its_own=cut) as a, host("b", place / "b", ways_of_its_own=cut) as b:
        workers = {each.name: each for each in (a, b)}
        a.processes[0].wait(lambda: status(requests[0]) == RequestStatus.ACTIVE, seconds=180)
        requests.append(imported(events=20))
        attempts = DAG.objects.filter(workflow__request=requests[-1], submit_intent_at__isnull=False)
        until(attempts.exists, "a submission begins", seconds=120)
        first = workers.pop(leader())
        (second,) = workers.values()
        at, epoch = clock.now(), Lease.objects.get(name=LEADER_LEASE).epoch
        lost(first)  # type: ignore[operator]
        second.processes[0].wait(lambda: leader() == second.name, seconds=PROMISED_SECONDS)
        took = (leads_since() - at).total_seconds()
        print(f"{first.name} lost, {second.name} leads after {took:.1f} s")
        assert took <= PROMISED_SECONDS * PATIENCE
        first.back()
        second.processes[0].wait(lambda: all(ended(request) for request in requests), seconds=300)
        assert Lease.objects.get(name=LEADER_LEASE).epoch > epoch
    assert AuditEntry.objects.filter(action="leader_takeover").exists()
    for request in requests:
        assert_completed_once(request)
        assert not Effect.objects.filter(request=request).exclude(state=EffectState.DONE).exists()
