"""Celery tasks of what belongs to no app."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings

from wms2.runtime.notify import RUN_BULK
from wms2.runtime.periodic import EFFECTS_SECONDS, task
from wms2.work.bulk import bulk_go_on

#: A worker then takes another task; the next one goes on.
TIME_SLICE_SECONDS = 10.0


@task(RUN_BULK, queue="effects", beat="bulk", every=EFFECTS_SECONDS)
def run_bulk() -> None:
    """What waits of bulk runs, for some time."""
    bulk_go_on(seconds=TIME_SLICE_SECONDS)


@task("wms2.tasks.clear_sessions", queue="effects", beat="sessions", every=3600.0, can_wait=True)
def clear_sessions() -> None:
    """Remove the sessions that have expired; each sign-in leaves one."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
