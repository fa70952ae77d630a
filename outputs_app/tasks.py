"""Celery tasks of outputs_app: thin carriers over the executor and the comparisons."""

from __future__ import annotations

from outputs_app.checks.reconciliation.run import comparisons_run
from outputs_app.effects.executor import effects_run_due
from outputs_app.effects.source_rules import source_rules_check
from wms2.runtime.identity import process_name
from wms2.runtime.notify import RECONCILE, RUN_EFFECTS
from wms2.runtime.periodic import EFFECTS_SECONDS, task


@task(RUN_EFFECTS, queue="effects", beat="effects", every=EFFECTS_SECONDS)
def run_effects() -> None:
    """Run what is due."""
    effects_run_due(owner=process_name())


@task("outputs_app.tasks.look_at_source_rules", queue="effects", beat="source-rules", every=3600.0, can_wait=True)
def look_at_source_rules() -> None:
    """End those whose time has come."""
    source_rules_check()


# how often a dataset is compared is WMS2_RECONCILE_HOURS; this is how soon what is due is noticed
@task(RECONCILE, queue="effects", beat="reconcile", every=300.0, can_wait=True)
def reconcile() -> None:
    """Compare what is due with DBS and Rucio, and check rules, for about a minute."""
    comparisons_run()
