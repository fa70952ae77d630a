"""Celery tasks of sites_app."""

from __future__ import annotations

import structlog
from celery import shared_task

from sites_app.statuses import slots_refresh
from sites_app.sync import sites_sync
from wms2.errors import ServiceError

log = structlog.get_logger(__name__)


@shared_task(name="sites_app.tasks.sync_sites", ignore_result=True)
def sync_sites() -> None:
    """Take sites from CRIC; a failed sync leaves everything as it was."""
    try:
        sites_sync()
    except ServiceError as error:
        log.error("sites not synced", error=str(error))


@shared_task(name="sites_app.tasks.refresh_slots", ignore_result=True)
def refresh_slots() -> None:
    """Slots from the collector; when it is silent, the figures stay and show their age."""
    try:
        slots_refresh()
    except ServiceError as error:
        log.warning("slots not refreshed", error=str(error))
