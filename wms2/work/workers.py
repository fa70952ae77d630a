"""Worker pools: the workers of each Celery queue, what operators want of them, and what they tell of themselves (ADR 0028).

What is wanted are rows, which every worker reads with its heartbeat and at its start (``wms2.work.step``): a silent broker
hides no worker, and a restart brings no drained pool back. Celery's remote control only makes it quick. Starting and ending
workers is the supervisor's or the autoscaler's; an alert says when none is alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog
from celery import current_task
from django.conf import settings
from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from wms2.actions import must_apply
from wms2.audit import audited
from wms2.celery import app
from wms2.conf import conf
from wms2.errors import StaleState
from wms2.metrics.series import ALERTS_TOTAL
from wms2.models import ResourceLease, Worker, WorkerPool, WorkerPoolState
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.web.formatting import exact
from wms2.work.resources import leases_expire

#: A pool without a living worker for so long raises an alert.
_MISSING_SECONDS = 300.0

log = structlog.get_logger(__name__)
S = WorkerPoolState
#: In which its workers take tasks.
TAKING = (S.STARTING, S.RUNNING)
#: For so long a worker that has gone without a word is shown.
_DEAD_SHOWN = timedelta(days=1)
#: Heartbeats that a worker may miss.
_MISSED = 3


def pools_ensure(**_: object) -> None:
    """After each migrate: a row for each queue."""
    for queue in settings.CELERY_TASK_QUEUES:
        WorkerPool.objects.get_or_create(queue=queue.name)


def workers_alive(queue: str = "") -> list[Worker]:
    """Those of a pool, or all, that have reported lately."""
    return list(workers_reporting().filter(queues__contains=[queue] if queue else []))


def workers_reporting() -> QuerySet[Worker]:
    """Of all pools."""
    since = clock.in_sql() - timedelta(seconds=_MISSED * conf().worker_heartbeat_seconds)
    return Worker.objects.filter(heartbeat_at__gte=since)


def last_heartbeat_at(queue: str) -> datetime | None:
    """The newest of a pool's workers, dead ones included."""
    last: datetime | None = Worker.objects.filter(queues__contains=[queue]).aggregate(last=Max("heartbeat_at"))["last"]
    return last


class WorkersOfPool(NamedTuple):
    """A pool, its workers that are alive, and those that have gone without a word lately."""

    pool: WorkerPool
    alive: list[Worker]
    silent: list[Worker]


def workers_by_pool() -> list[WorkersOfPool]:
    """Two queries."""
    since, workers = timezone.now() - timedelta(seconds=_MISSED * conf().worker_heartbeat_seconds), list(Worker.objects.all())
    found = [(pool, [each for each in workers if each.serves(pool.queue)]) for pool in WorkerPool.objects.all()]
    return [
        WorkersOfPool(pool, [w for w in own if w.heartbeat_at >= since], [w for w in own if w.heartbeat_at < since])
        for pool, own in found
    ]


class PoolProblem(NamedTuple):
    """Why what a worker pool should do waits; ``by``: who stopped it and why, which is not for everybody."""

    queue: str
    words: str
    by: str

    def __str__(self) -> str:
        return f"{self.words} ({self.by})" if self.by else self.words


def pool_problems() -> list[PoolProblem]:
    """Pools that take no tasks, or of which no worker has been alive for longer than is an alert. Two queries."""
    return problems_of(WorkerPool.objects.all(), list(Worker.objects.all()))


def problems_of(pools: Iterable[WorkerPool], rows: Sequence[Worker]) -> list[PoolProblem]:
    """The same, of pools and workers that were read."""
    now, found = timezone.now(), []
    for pool in pools:
        beats = [worker.heartbeat_at for worker in rows if worker.serves(pool.queue)]
        alive = sum((now - beat).total_seconds() < _MISSED * conf().worker_heartbeat_seconds for beat in beats)
        since = pool.short_since or max(beats, default=now)
        stopped, why = pool.state not in TAKING, []
        if stopped:
            why.append(f"{pool.get_state_display().lower()} since {exact(pool.since)}; it takes no tasks until it is resumed")
        if not alive and (now - since).total_seconds() >= _MISSING_SECONDS:
            why.append(f"no worker alive since {exact(since)}; start one")
        if why:
            found.append(PoolProblem(pool.queue, "; ".join(why), pool.reason if stopped else ""))
    return found


def may_take(queue: str) -> bool:
    """Whether a task that takes one thing after the other may take the next; asked outside of workers it always may."""
    return not current_task or not WorkerPool.objects.filter(pk=queue).exclude(state__in=TAKING).exists()


def pool_change_refused(pool: WorkerPool, state: WorkerPoolState) -> str:
    """Why a pool cannot be drained or resumed; empty if it can."""
    if state is S.STARTING:
        return "" if pool.state not in TAKING else "It takes tasks already."
    return "" if pool.state in TAKING else "It takes no tasks already."


def pool_change(*, pool: WorkerPool, state: WorkerPoolState, actor: str, reason: str) -> None:
    """Drain or resume a pool. Raises InvalidTransition: it is so already; StaleState: another user has changed it since
    it was read."""
    with audited(actor=actor, action=f"pool_{state}", target=pool.queue, target_type="pool", reason=reason, old=pool.state):
        must_apply(pool.queue, pool_change_refused(pool, state))
        changes = {"state": state, "since": clock.now(), "reason": f"{actor}: {reason}"}
        if WorkerPool.objects.filter(pk=pool.pk, state=pool.state).update(**changes) != 1:
            raise StaleState(f"{pool.queue} is no longer {pool.get_state_display().lower()}")
        workers = workers_alive(pool.queue)
        transaction.on_commit(partial(_steer, pool.queue, [worker.name for worker in workers], state in TAKING))
        log.info("worker pool", pool=pool.queue, state=state.value, workers=len(workers), actor=actor, reason=reason)


def _steer(queue: str, workers: list[str], taking: bool) -> None:
    if not workers:
        return
    try:
        (app.control.add_consumer if taking else app.control.cancel_consumer)(queue, destination=workers)
    except (BrokerError, OSError) as error:
        log.warning("workers not reached, they read it with their next heartbeat", pool=queue, error=str(error))


def worker_shutdown(*, worker: Worker, actor: str, reason: str) -> None:
    """Have a worker end once its tasks have; a supervisor may start it again."""
    with audited(actor=actor, action="worker_shutdown", target=worker.name, target_type="worker", reason=reason):
        app.control.shutdown(destination=[worker.name])


def pools_reconcile(fenced: Fenced) -> None:
    """Compare what is wanted with what workers tell: states that have come about, workers missing, leases that ran out."""
    now = clock.now()
    with fenced():
        leases_expire(ResourceLease.objects.all())
        Worker.objects.filter(heartbeat_at__lt=now - _DEAD_SHOWN).delete()
        for pool in WorkerPool.objects.select_for_update(skip_locked=True):
            ours = workers_alive(pool.queue)
            taking = any(pool.queue in worker.takes for worker in ours)
            if pool.state == S.STARTING and taking:
                pool.state, pool.since = S.RUNNING, now
            elif pool.state == S.DRAINING and not taking and not any(worker.busy.get(pool.queue) for worker in ours):
                pool.state, pool.since = S.STOPPED, now
            _watch(pool, bool(ours), now)
            pool.save()


def _watch(pool: WorkerPool, alive: bool, now: datetime) -> None:
    if alive:
        pool.short_since, pool.alerted = None, False
        return
    pool.short_since = pool.short_since or now
    if not pool.alerted and now - pool.short_since >= timedelta(seconds=_MISSING_SECONDS):
        pool.alerted = True
        ALERTS_TOTAL.labels("workers_missing").inc()
        log.error("alert", alert="workers_missing", pool=pool.queue)
