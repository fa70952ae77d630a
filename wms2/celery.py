"""The Celery app; tasks, their queues and the beat schedule are declared with ``wms2.runtime.periodic``.

Celery carries hints; PostgreSQL rows are the truth, and a lost task costs one tick.
"""

from __future__ import annotations

import os

from celery import Celery
from kombu.exceptions import OperationalError

from wms2.runtime import broker

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
        "wms2.tasks.clear_sessions",
    }
)


broker.install()
app = Celery("wms2", task_cls="wms2.work.failing:ReportingTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["worker"].add("wms2.work.step:Heartbeats")

_CYCLE_SECONDS = float(os.environ.get("WMS2_CYCLE_SECONDS") or 60)
_POLL_SECONDS = float(os.environ.get("WMS2_POLL_SECONDS") or 2)
_REQMGR2_SECONDS = float(os.environ.get("WMS2_REQMGR2_POLL_SECONDS") or 60)
_TICK_SECONDS = min(_CYCLE_SECONDS, _POLL_SECONDS)
#: A new effect is notified at once; this is for those that are due later, or tried again.
_EFFECTS_SECONDS = min(_CYCLE_SECONDS, 10.0)

#: Jobs at sites are processed so often.
_SITE_SECONDS = min(_CYCLE_SECONDS, 60.0)

#: Name -> task, seconds from one run to the next, after which a run that no worker has taken expires.
_SCHEDULE = {
    "lifecycle": ("requests_app.tasks.run_lifecycle_cycle", _TICK_SECONDS),
    "effects": ("outputs_app.tasks.run_effects", _EFFECTS_SECONDS),
    "bulk": ("wms2.tasks.run_bulk", _EFFECTS_SECONDS),
    "source-rules": ("outputs_app.tasks.look_at_source_rules", 3600.0),
    # how often a dataset is compared is WMS2_RECONCILE_HOURS; this is how soon what is due is noticed
    "reconcile": ("outputs_app.tasks.reconcile", 300.0),
    "cases": ("outputs_app.tasks.remind_of_cases", 600.0),
    "packs": ("requests_app.tasks.pack_dags", 600.0),
    "archive": ("requests_app.tasks.archive_requests", 3600.0),
    "leftovers": ("requests_app.tasks.remove_leftovers", _SITE_SECONDS),
    "storage": ("requests_app.tasks.check_storage", _SITE_SECONDS),
    "harvests": ("requests_app.tasks.harvest", _SITE_SECONDS),
    "dark-files": ("requests_app.tasks.look_for_dark_files", 3600.0),
    "rucio-account": ("requests_app.tasks.look_at_rucio_account", 600.0),
    "reqmgr2": ("requests_app.tasks.poll_reqmgr2", _REQMGR2_SECONDS),
    "onboardings": ("dags_app.tasks.tend_onboardings", _SITE_SECONDS),
    "sites": ("sites_app.tasks.sync_sites", 3600.0),
    "site_statuses": ("sites_app.tasks.sync_site_statuses", 600.0),
    "slots": ("sites_app.tasks.refresh_slots", 60.0),
    "sessions": ("wms2.tasks.clear_sessions", 3600.0),
}
app.conf.beat_schedule = {
    name: {"task": task, "schedule": seconds, "options": {"expires": seconds}} for name, (task, seconds) in _SCHEDULE.items()
}


def broker_answers() -> bool:
    """Whether it takes a connection, within a short time."""
    try:
        with app.connection_for_write(transport_options={"socket_connect_timeout": BROKER_TIMEOUT_SECONDS}) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=BROKER_TIMEOUT_SECONDS)
    except (OperationalError, OSError):
        return False
    return True
