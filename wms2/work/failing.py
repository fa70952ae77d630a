"""Tasks of the schedule that fail: a row each, from the first failure until the task works again (ADR 0028).

They belong to no request, so nothing else would show them. Owns the base class of all Celery tasks, not what they do.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import structlog
from celery import Task
from django.db import DatabaseError
from django.db.models import F

from wms2.audit import audited
from wms2.errors import ServiceError
from wms2.models import FailingTask
from wms2.runtime import clock, levels, periodic
from wms2.runtime.notify import notify

log = structlog.get_logger(__name__)


class ReportingTask(Task):  # type: ignore[misc]
    """A task whose failures are kept if the schedule has it; a service that does not answer is no error of the worker."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and tell how it went. Nothing, and False, if it is one that can wait now; its next tick comes."""
        declared = periodic.DECLARED.get(str(self.name))
        if declared is not None and declared.can_wait and levels.known().level is not levels.Level.NORMAL:
            return False
        try:
            result = super().__call__(*args, **kwargs)
        except Exception as error:
            task_failed(str(self.name), error)
            if not isinstance(error, ServiceError):
                raise
            log.warning("task failed", task=self.name, error=str(error))
            return None
        if declared is not None and declared.beat:
            FailingTask.objects.filter(pk=self.name).delete()
        return result


def task_failed(name: str, error: Exception) -> None:
    """Count a failure in a row; not where the database is what fails, which cannot be written down."""
    declared = periodic.DECLARED.get(name)
    if declared is None or declared.every_seconds is None or isinstance(error, DatabaseError):
        return
    now = clock.now()
    reported = {
        "last_at": now,
        "next_at": now + timedelta(seconds=declared.every_seconds),
        "last_error": f"{type(error).__name__}: {error}"[:4000],
    }
    row, first = FailingTask.objects.get_or_create(pk=name, defaults={"since": now, **reported})
    if not first:
        FailingTask.objects.filter(pk=row.pk).update(failures=F("failures") + 1, **reported)


def task_retry(*, task: FailingTask, actor: str, reason: str) -> None:
    """Run it now, beside its schedule."""
    with audited(actor=actor, action="task_retry", target=task.pk, target_type="task", reason=reason, failures=task.failures):
        notify(task.pk)


def task_discard(*, task: FailingTask, actor: str, reason: str) -> None:
    """Hear no more of it until it has worked."""
    with audited(actor=actor, action="task_discard", target=task.pk, target_type="task", reason=reason, failures=task.failures):
        FailingTask.objects.filter(pk=task.pk).update(discarded=f"{actor}: {reason}")
