"""Celery tasks of outputs_app: thin carriers over the executor."""

from __future__ import annotations

from celery import shared_task

from outputs_app.executor import effects_run_due
from wms2.identity import process_name
from wms2.nudge import EVALUATE_REQUEST, nudge


@shared_task(name="outputs_app.tasks.run_effects", ignore_result=True)
def run_effects() -> None:
    """Run what is due, then hint at the requests that may now go on."""
    for request_id in effects_run_due(owner=process_name()):
        nudge(EVALUATE_REQUEST, str(request_id))
