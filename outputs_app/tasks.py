"""Celery tasks of outputs_app: thin carriers over the executor."""

from __future__ import annotations

from celery import shared_task

from outputs_app.executor import effects_run_due
from outputs_app.source_rules import source_rules_look
from wms2.identity import process_name


@shared_task(name="outputs_app.tasks.run_effects", ignore_result=True)
def run_effects() -> None:
    """Run what is due."""
    effects_run_due(owner=process_name())


@shared_task(name="outputs_app.tasks.look_at_source_rules", ignore_result=True)
def look_at_source_rules() -> None:
    """End those whose time has come."""
    source_rules_look()
