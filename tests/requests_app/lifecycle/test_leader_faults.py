"""A leader that is paused or cut off is replaced, and does nothing when it comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from dags_app.models import DAG, DAGStatus
from dags_app.services.watch import checks_of, schedd_observe
from requests_app.lifecycle import leader
from requests_app.lifecycle.watching import orphans_reported, schedds_watch
from requests_app.models import Lease, Request
from sites_app.models import Schedd
from tests.support.faults import fault
from tests.support.scripted import documents
from tests.support.scripted.schedd import Job
from tests.support.scripted.world import INSTANCE, World
from tests.support.stalling import other, stalling
from tests.support.waiting import until
from wms2.conf import Conf, conf
from wms2.errors import LeaseLost
from wms2.models import AuditEntry
from wms2.runtime.periodic import POLL_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)
PROGRAM = """
from django.db import DatabaseError
from requests_app.lifecycle.leader import leading
from wms2.errors import LeaseLost
with leading() as leadership:
    print("> leads", leadership.epoch)
    input()
    try:
        with leadership.fenced():
            print("> acts")
    except (LeaseLost, DatabaseError) as error:
        print("> gives way", type(error).__name__)
print("> done")
"""


def expire() -> None:
    Lease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def sessions(pid: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid])
        return int(cursor.fetchone()[0])


@pytest.fixture(name="place")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("way")


def replaced() -> None:
    """Nobody else leads while the lease lasts; then somebody does, and the session of the one before is ended."""
    row = Lease.objects.get()
    assert sessions(row.backend_pid) == 1
    with leader.leading() as early:
        assert early is None, "two would lead"
    expire()
    with leader.leading() as late:
        assert late is not None
        assert late.epoch == 2
        until(lambda: sessions(row.backend_pid) == 0, "the session of the former leader is over", seconds=10)
    assert AuditEntry.objects.get(action="leader_takeover").evidence["former"] == row.process


@fault(
    "leader paused",
    done="the process that leads is stopped (SIGSTOP) and its lease runs out",
    spec="docs/design/control.md, Leader",
    afterwards="another one leads with a higher epoch, the session of the first is ended, and when it goes on it does nothing",
)
def test_a_paused_leader_is_replaced_and_does_nothing_when_it_goes_on() -> None:
    with other(PROGRAM, WMS2_NODE="n1") as process:
        assert process.hears() == "leads 1"
        process.signal(signal.SIGSTOP)
        try:
            replaced()
        finally:
            process.signal(signal.SIGCONT)
        process.goes_on()
        assert process.hears().startswith("gives way")
        assert process.hears() == "done"


@fault(
    "leader behind a stalled connection",
    done="nothing passes between the leader and the database any more, and neither end is told; its lease runs out",
    spec="docs/design/control.md, Leader",
    afterwards="another one leads with a higher epoch, the session of the first is ended; when the way is open it does nothing",
)
def test_a_leader_that_is_cut_off_is_replaced_and_does_nothing_when_the_way_is_open_again(place: Path) -> None:
    with stalling(place) as way, other(PROGRAM, host=str(place), WMS2_NODE="n1") as process:
        assert process.hears() == "leads 1"
        way.stall()
        replaced()
        process.goes_on()
        way.go_on()
        assert process.hears().startswith("gives way")
        assert process.hears() == "done"


def test_a_killed_leader_is_replaced_at_once_by_another_process_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_NODE", "n1")
    with other(PROGRAM, WMS2_NODE="n1") as process:
        assert process.hears() == "leads 1"
        process.signal(signal.SIGKILL)
        process.process.wait(10)
        pid = Lease.objects.get().backend_pid
        until(lambda: sessions(pid) == 0, "its session has ended", seconds=10)
    with leader.leading() as leadership:
        assert leadership is not None, "nobody could be at it any more"
        assert leadership.epoch == 2


def somebody_else_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process had been paused for longer than the lease lasts."""
    Lease.objects.update(expires_at=timezone.now() - timedelta(days=1))
    monkeypatch.setenv("WMS2_NODE", "another")
    with leader.leading() as other_one:
        assert other_one is not None


def started(world: World) -> tuple[Request, Job]:
    request = world.request(documents.generation(300))
    world.cycle()
    world.cycle()
    return request, world.job_of(request)


def test_what_a_schedd_said_to_a_leader_that_was_replaced_meanwhile_is_not_written(world: World, monkeypatch) -> None:
    started(world)
    world.schedd.lose_queue()
    with leader.leading() as leadership:
        assert leadership is not None
        world.schedd.script.meanwhile = lambda: somebody_else_leads(monkeypatch)
        with pytest.raises(LeaseLost, match="another"):
            (check,) = checks_of(Schedd.objects.all())
            schedd_observe(check=check, answer=check.ask(INSTANCE), fenced=leadership.fenced)
    assert DAG.objects.get().missing_since is None


def test_a_leader_that_was_replaced_removes_no_job(world: World, monkeypatch) -> None:
    _, job = started(world)
    DAG.objects.update(status=DAGStatus.REMOVED)
    with leader.leading() as leadership:
        assert leadership is not None
        (check,) = checks_of(Schedd.objects.all())
        seen = schedd_observe(check=check, answer=check.ask(INSTANCE), fenced=leadership.fenced)
        assert [orphan.cluster for orphan in seen.orphans] == [job.cluster]
        somebody_else_leads(monkeypatch)
        with pytest.raises(LeaseLost, match="another"):
            orphans_reported(Schedd.objects.get(), seen.orphans, leadership.fenced)
        with pytest.raises(LeaseLost, match="another"):
            schedds_watch(leadership)
        assert not job.remove_reason
    with leader.leading() as leadership:
        assert leadership is not None
        schedds_watch(leadership)
        assert job.remove_reason


def test_by_default_a_leader_is_replaced_within_a_minute_of_its_last_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lease_seconds", "service_timeout_seconds"):
        monkeypatch.setenv(f"WMS2_{name.upper()}", str(Conf.model_fields[name].default))
    conf.cache_clear()
    life = leader.lease_life().total_seconds()
    assert life > conf().service_timeout_seconds, "it may wait for a silent schedd"
    assert life + POLL_SECONDS <= 60
