"""Celery beat's scheduler, which says once that the broker is away: each tick that is lost meanwhile is found again by rows."""

from __future__ import annotations

from typing import Any

import structlog
from celery.beat import PersistentScheduler, SchedulingError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)
#: What a broker that does not answer raises, by way of kombu or past it.
_AWAY = (OperationalError, OSError, RedisError)


class Scheduler(PersistentScheduler):  # type: ignore[misc]
    """Sends what is due; of an outage it logs the beginning and the end, not each task with its traceback."""

    lost = 0  # tasks that could not be sent since the broker took one last

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send one task."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            if not isinstance(error.__context__, _AWAY):
                log.exception("task not sent", task=entry.task)
                return
            if not self.lost:
                log.warning("the broker does not answer: no task is sent until it does", task=entry.task, error=str(error))
            self.lost += 1
        else:
            if self.lost:
                log.info("the broker answers again", tasks_lost=self.lost)
            self.lost = 0
