"""Hints through Celery. Losing one costs time, never work: the next poll over rows does the same."""

from __future__ import annotations

from typing import Any

import structlog
from django.db import transaction
from kombu.exceptions import OperationalError

from wms2.celery import app
from wms2.metrics.series import HINTS_LOST_TOTAL

log = structlog.get_logger(__name__)

POLL_REQMGR2 = "requests_app.tasks.poll_reqmgr2"
RUN_CYCLE = "requests_app.tasks.run_lifecycle_cycle"
EVALUATE_DUE = "requests_app.tasks.evaluate_due"
EVALUATE_REQUEST = "requests_app.tasks.evaluate_request"
RUN_EFFECTS = "outputs_app.tasks.run_effects"
RECONCILE = "outputs_app.tasks.reconcile"
CHECK_ONBOARDINGS = "dags_app.tasks.tend_onboardings"
REMOVE_LEFTOVERS = "requests_app.tasks.remove_leftovers"
CHECK_STORAGE = "requests_app.tasks.check_storage"
PACK_DAGS = "requests_app.tasks.pack_dags"
RUN_BULK = "wms2.tasks.run_bulk"
#: A hint that no worker took by then is worth nothing: a later tick has given it again. Keeps a slow worker's queue short.
HINT_SECONDS = 60


def notify(task_name: str, *args: Any) -> None:
    """Ask for a task once the present transaction has committed; a silent broker is logged and counted."""
    transaction.on_commit(lambda: _send(task_name, args))


def _send(task_name: str, args: tuple[Any, ...]) -> None:
    try:
        app.send_task(task_name, args=args, ignore_result=True, expires=HINT_SECONDS)
    except (OperationalError, OSError) as error:
        HINTS_LOST_TOTAL.inc()
        log.warning("notification lost, the next cycle acts", task=task_name, error=str(error))
