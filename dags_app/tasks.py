"""Celery tasks of dags_app."""

from __future__ import annotations

from dags_app.services.onboarding import onboardings_process
from wms2.runtime.notify import CHECK_ONBOARDINGS
from wms2.runtime.periodic import SITE_SECONDS, task


@task(CHECK_ONBOARDINGS, beat="onboardings", every=SITE_SECONDS)
def tend_onboardings() -> None:
    """Carry on with the checks of schedds."""
    onboardings_process()
