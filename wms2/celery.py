"""The Celery app; tasks, their queues and the beat schedule are declared with ``wms2.runtime.periodic``.

Celery carries hints; PostgreSQL rows are the truth, and a lost task costs one tick.
"""

from __future__ import annotations

import os

from celery import Celery
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES

from wms2.runtime.broker import Transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.settings")

BROKER_TIMEOUT_SECONDS = 2.0

# For every broker URL of Redis' protocol, in this process.
TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{Transport.__module__}:{Transport.__name__}"))
app = Celery("wms2", task_cls="wms2.work.failing:ReportingTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["worker"].add("wms2.work.step:Heartbeats")


def broker_answers() -> bool:
    """Whether it takes a connection, within a short time."""
    try:
        with app.connection_for_write(transport_options={"socket_connect_timeout": BROKER_TIMEOUT_SECONDS}) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=BROKER_TIMEOUT_SECONDS)
    except (OperationalError, OSError):
        return False
    return True
