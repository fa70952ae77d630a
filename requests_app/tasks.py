"""Celery tasks of requests_app: thin carriers. Beat fires ``run_lifecycle_cycle``; verbs nudge ``evaluate_request``."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import beat_init, worker_init

from requests_app.installation import process_begin
from requests_app.lifecycle.cycle import run_cycle
from requests_app.lifecycle.evaluator import evaluate_one
from wms2.errors import ConfigurationError


@worker_init.connect
@beat_init.connect
def refuse_foreign_database(**_: Any) -> None:
    """A worker or beat of another instance or environment must not touch this database, nor one whose clock is wrong.

    Celery logs and forgets ordinary exceptions of signal receivers; only an exit stops the start.
    """
    try:
        process_begin()
    except ConfigurationError as error:
        raise SystemExit(f"not started: {error}") from error


@shared_task(name="requests_app.tasks.run_lifecycle_cycle", ignore_result=True)
def run_lifecycle_cycle() -> None:
    """One tick: lead if we may, observe the schedds, hand out evaluations."""
    run_cycle()


@shared_task(name="requests_app.tasks.evaluate_request", ignore_result=True)
def evaluate_request(pk: str) -> None:
    """One step of one request."""
    evaluate_one(pk)
