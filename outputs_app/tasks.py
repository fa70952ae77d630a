"""Celery tasks of outputs_app: thin carriers over the executor and the comparisons."""

from __future__ import annotations

from celery import shared_task

from outputs_app.checks.reconciliation.run import comparisons_run
from outputs_app.effects.executor import effects_run_due
from outputs_app.effects.source_rules import source_rules_check
from wms2.runtime.identity import process_name
from wms2.runtime.notify import RECONCILE


@shared_task(name="outputs_app.tasks.run_effects", ignore_result=True)
def run_effects() -> None:
    """Run what is due."""
    effects_run_due(owner=process_name())


@shared_task(name="outputs_app.tasks.look_at_source_rules", ignore_result=True)
def look_at_source_rules() -> None:
    """End those whose time has come."""
    source_rules_check()


@shared_task(name=RECONCILE, ignore_result=True)
def reconcile() -> None:
    """Compare what is due with DBS and Rucio, for about a minute."""
    comparisons_run()
