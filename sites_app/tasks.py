"""Celery tasks of sites_app."""

from __future__ import annotations

from sites_app.pools import pools_refresh
from sites_app.sync import site_statuses_sync, sites_sync
from wms2.conf import conf
from wms2.runtime.periodic import task


@task("sites_app.tasks.sync_sites", queue="effects", beat="sites", every=3600.0, can_wait=True)
def sync_sites() -> None:
    """Take sites from CRIC; a failed sync leaves everything as it was."""
    sites_sync()


@task("sites_app.tasks.sync_site_statuses", queue="effects", beat="site_statuses", every=600.0)
def sync_site_statuses() -> None:
    """Take the status of sites from SSB, where it is followed; a failed sync leaves everything as it was."""
    if conf().site_status_url:
        site_statuses_sync()


@task("sites_app.tasks.refresh_slots", queue="effects", beat="slots", every=60.0, can_wait=True)
def refresh_slots() -> None:
    """Schedds and slots from the collectors; of one that is silent, the figures stay and show their age."""
    pools_refresh()
