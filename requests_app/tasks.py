"""Celery tasks of requests_app: thin carriers. Beat fires ``run_lifecycle_cycle``; verbs nudge ``evaluate_request``."""

from __future__ import annotations

from celery import shared_task

from requests_app.cycle import run_cycle
from requests_app.evaluator import evaluate_one


@shared_task(name="requests_app.tasks.run_lifecycle_cycle", ignore_result=True)
def run_lifecycle_cycle() -> None:
    """One tick: lead if we may, observe the schedds, hand out evaluations."""
    run_cycle()


@shared_task(name="requests_app.tasks.evaluate_request", ignore_result=True)
def evaluate_request(pk: str) -> None:
    """One step of one request."""
    evaluate_one(pk)
