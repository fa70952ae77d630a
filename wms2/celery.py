"""The Celery app and its beat schedule. Celery carries hints; PostgreSQL rows are the truth, and a lost task costs one tick."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task
from kombu.exceptions import OperationalError

from wms2 import broker, levels

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.settings")

BROKER_TIMEOUT_SECONDS = 2.0
#: Skipped while the service is strained or closed: looking after what is at rest. Nothing that runs waits for one of these.
CAN_WAIT = frozenset(
    {
        "outputs_app.tasks.look_at_source_rules",
        "outputs_app.tasks.reconcile",  # comparisons with DBS and Rucio, and the census of rules
        "outputs_app.tasks.remind_of_cases",
        "requests_app.tasks.archive_requests",
        "requests_app.tasks.pack_dags",
        "sites_app.tasks.refresh_slots",
        "sites_app.tasks.sync_sites",
    }
)


class UnlessStrained(Task):  # type: ignore[misc]
    """A task that may be one of those that can wait."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing, and False, if it is one of these now; its next tick comes."""
        if self.name in CAN_WAIT and levels.known().level is not levels.Level.NORMAL:
            return False
        return super().__call__(*args, **kwargs)


broker.install()
app = Celery("wms2", task_cls="wms2.failing:ToldTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["worker"].add("wms2.worker_step:Heartbeats")

_CYCLE_SECONDS = float(os.environ.get("WMS2_CYCLE_SECONDS") or 60)
_POLL_SECONDS = float(os.environ.get("WMS2_POLL_SECONDS") or 2)
_REQMGR2_SECONDS = float(os.environ.get("WMS2_REQMGR2_POLL_SECONDS") or 60)
_TICK_SECONDS = min(_CYCLE_SECONDS, _POLL_SECONDS)
#: Whoever asks for an effect calls for it at once; this is for those that are tried again.
_EFFECTS_SECONDS = min(_CYCLE_SECONDS, 10.0)

#: Jobs at sites are tended so often.
_SITE_SECONDS = min(_CYCLE_SECONDS, 60.0)

app.conf.beat_schedule = {
    "lifecycle": {
        "task": "requests_app.tasks.run_lifecycle_cycle",
        "schedule": _TICK_SECONDS,
        "options": {"expires": _TICK_SECONDS},
    },
    "effects": {"task": "outputs_app.tasks.run_effects", "schedule": _EFFECTS_SECONDS, "options": {"expires": _EFFECTS_SECONDS}},
    "source-rules": {"task": "outputs_app.tasks.look_at_source_rules", "schedule": 3600.0, "options": {"expires": 3600.0}},
    # how often a dataset is compared is WMS2_RECONCILE_HOURS; this is how soon what is due is noticed
    "reconcile": {"task": "outputs_app.tasks.reconcile", "schedule": 300.0, "options": {"expires": 300.0}},
    "cases": {"task": "outputs_app.tasks.remind_of_cases", "schedule": 600.0, "options": {"expires": 600.0}},
    "packs": {"task": "requests_app.tasks.pack_dags", "schedule": 600.0, "options": {"expires": 600.0}},
    "archive": {"task": "requests_app.tasks.archive_requests", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "leftovers": {
        "task": "requests_app.tasks.remove_leftovers",
        "schedule": _SITE_SECONDS,
        "options": {"expires": _SITE_SECONDS},
    },
    "storage": {"task": "requests_app.tasks.check_storage", "schedule": _SITE_SECONDS, "options": {"expires": _SITE_SECONDS}},
    "harvests": {"task": "requests_app.tasks.harvest", "schedule": _SITE_SECONDS, "options": {"expires": _SITE_SECONDS}},
    "reqmgr2": {
        "task": "requests_app.tasks.poll_reqmgr2",
        "schedule": _REQMGR2_SECONDS,
        "options": {"expires": _REQMGR2_SECONDS},
    },
    "onboardings": {
        "task": "dags_app.tasks.tend_onboardings",
        "schedule": _SITE_SECONDS,
        "options": {"expires": _SITE_SECONDS},
    },
    "sites": {"task": "sites_app.tasks.sync_sites", "schedule": 3600.0, "options": {"expires": 3600.0}},
    "slots": {"task": "sites_app.tasks.refresh_slots", "schedule": 60.0, "options": {"expires": 60.0}},
}


def broker_answers() -> bool:
    """Whether it takes a connection, within a short time."""
    try:
        with app.connection_for_write(transport_options={"socket_connect_timeout": BROKER_TIMEOUT_SECONDS}) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=BROKER_TIMEOUT_SECONDS)
    except (OperationalError, OSError):
        return False
    return True
