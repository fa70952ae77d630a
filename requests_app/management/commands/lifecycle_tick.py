"""``manage.py lifecycle_tick``: the life cycle without Celery, once or in a loop; for tests and for the day Celery is broken."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

import structlog
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from outputs_app.effects.executor import effects_run_due
from requests_app.harvesting.jobs import harvests_run
from requests_app.installation import process_begin
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.lifecycle.cycle import ALERTS, run_cycle
from requests_app.lifecycle.evaluator import evaluate_due
from requests_app.lifecycle.storage_checks import storage_checks_run
from requests_app.reqmgr2.following import reqmgr2_poll
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.runtime.identity import process_name
from wms2.runtime.periodic import POLL_SECONDS

log = structlog.get_logger(__name__)


class Command(BaseCommand):
    """Observe, evaluate what is due, run effects, in this process."""

    help = "One pass of the life cycle in this process (no Celery), or a loop with --loop."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--loop`` and its pause."""
        parser.add_argument("--loop", action="store_true", help=f"repeat every {POLL_SECONDS:g} s until interrupted")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run.

        Raises:
            CommandError: another installation's database, or a wrong clock.
        """
        try:
            process_begin()
        except ConfigurationError as error:
            raise CommandError(f"not started: {error}") from error
        if not options["loop"]:
            tick(force=True)
            ALERTS.finish()
            return
        while True:
            try:
                tick()
            except DatabaseError as error:  # a restart of the database ends a pass, not the loop
                log.error("pass broken off, the next one begins anew", error=str(error))
                connections.close_all()
            time.sleep(POLL_SECONDS)


def tick(*, force: bool = False) -> None:
    """One pass; with a cycle, due or not."""
    reqmgr2_poll()
    run_cycle(force=force)
    evaluate_due(seconds=conf().cycle_seconds)
    effects_run_due(owner=process_name())
    storage_checks_run()
    leftovers_remove()
    storage_checks_run()
    harvests_run()
    evaluate_due(seconds=conf().cycle_seconds)
