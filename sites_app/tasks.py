"""Celery tasks of sites_app."""

from __future__ import annotations

from celery import shared_task

from sites_app.pools import pools_refresh
from sites_app.sync import site_statuses_sync, sites_sync
from wms2.conf import conf


@shared_task(name="sites_app.tasks.sync_sites", ignore_result=True)
def sync_sites() -> None:
    """Take sites from CRIC; a failed sync leaves everything as it was."""
    sites_sync()


@shared_task(name="sites_app.tasks.sync_site_statuses", ignore_result=True)
def sync_site_statuses() -> None:
    """Take the status of sites from SSB, where it is followed; a failed sync leaves everything as it was."""
    if conf().site_status_url:
        site_statuses_sync()


@shared_task(name="sites_app.tasks.refresh_slots", ignore_result=True)
def refresh_slots() -> None:
    """Schedds and slots from the collectors; of one that is silent, the figures stay and show their age."""
    pools_refresh()
