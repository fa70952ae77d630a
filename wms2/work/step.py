"""A part of every Celery worker: it tells of itself in a row, and does what the rows of its pools want (ADR 0028).

In a thread of its own, beside the worker's loop and whatever the broker does. Named to Celery by ``wms2.celery``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog
from celery import bootsteps
from celery.worker import state as requests
from django.db import connections

from wms2.conf import conf
from wms2.models import Worker, WorkerPool
from wms2.runtime import clock
from wms2.runtime.identity import node_name
from wms2.work.workers import TAKING

log = structlog.get_logger(__name__)


class Heartbeats(bootsteps.StartStopStep):  # type: ignore[misc]
    """Tells and steers for as long as the worker runs."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._over = threading.Event()
        self._queues: list[str] = []
        self._started_at = clock.now()

    def create(self, worker: Any) -> None:
        """Before anything is taken: what is drained is not."""
        selected = worker.app.amqp.queues
        self._queues = list(selected.consume_from)
        selected.deselect([queue for queue, taking in self._wanted().items() if not taking])
        connections["default"].close()  # processes are forked after this

    def start(self, worker: Any) -> None:
        """Once there are processes."""
        self._thread = threading.Thread(target=self._keep, args=(worker,), name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self, worker: Any) -> None:
        """The worker ends in good order, and is not missed."""
        self._over.set()
        self._thread.join()

    def _keep(self, worker: Any) -> None:
        while True:
            with _tried_again("heartbeat of the worker not written"):
                self._report(worker)
                self._steer(worker)
            if self._over.wait(conf().worker_heartbeat_seconds):
                with _tried_again("the worker is not taken off, it will be missed"):
                    Worker.objects.filter(name=worker.hostname).delete()
                return

    def _report(self, worker: Any) -> None:
        try:
            busy = Counter(each.delivery_info.get("routing_key", "") for each in tuple(requests.reserved_requests))
        except RuntimeError:  # changed while it was read: the next heartbeat tells
            return
        reported = {
            "queues": self._queues,
            "takes": [queue for queue in self._queues if queue in worker.app.amqp.queues.consume_from],
            "busy": busy,
            "processes": [f"{node_name()}:{pid}" for pid in worker.pool.info["processes"]],
            "started_at": self._started_at,
            "heartbeat_at": clock.now(),
        }
        Worker.objects.update_or_create(name=worker.hostname, defaults=reported)

    def _wanted(self) -> dict[str, bool]:
        """Queue -> whether it is taken from."""
        rows = WorkerPool.objects.filter(queue__in=self._queues).values_list("queue", "state")
        return {queue: state in TAKING for queue, state in rows}

    def _steer(self, worker: Any) -> None:
        consumer, wanted = worker.consumer, self._wanted()
        if consumer is None or getattr(consumer, "task_consumer", None) is None:
            return
        for queue, taking in wanted.items():
            if taking != (queue in worker.app.amqp.queues.consume_from):
                consumer.call_soon(partial(_tried, consumer.add_task_queue if taking else consumer.cancel_task_queue, queue))


@contextmanager
def _tried_again(failed: str) -> Iterator[None]:
    """Nothing ends the thread: a worker without heartbeats counts as dead, whatever it does."""
    try:
        try:
            yield
        finally:
            connections["default"].close()  # a process that is forked must not find it open
    except Exception as error:
        log.warning(failed, error=str(error).partition("\n")[0], exc_info=True)


def _tried(change: Any, what: Any) -> None:
    """In the worker's own loop, which nothing may end: the next heartbeat tries again."""
    try:
        change(what)
    except Exception:
        log.exception("worker not steered, tried again", what=what)
