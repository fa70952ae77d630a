"""Celery tasks of dags_app."""

from __future__ import annotations

from celery import shared_task

from dags_app.services.onboarding import onboardings_process
from wms2.runtime.notify import TEND_ONBOARDINGS


@shared_task(name=TEND_ONBOARDINGS, ignore_result=True)
def tend_onboardings() -> None:
    """Carry on with the checks of schedds."""
    onboardings_process()
