"""Ticks, verbs, effects and hints wait in queues of their own, and a worker that is told nothing else serves all of them."""

from __future__ import annotations

import pytest

from outputs_app.tasks import run_effects
from requests_app.tasks import evaluate_due, evaluate_request, pack_dags, run_lifecycle_cycle
from sites_app.tasks import sync_sites
from wms2.celery import app
from wms2.nudge import EVALUATE_DUE, EVALUATE_REQUEST, RUN_EFFECTS


@pytest.mark.parametrize(
    ("task", "queue"),
    [
        (run_lifecycle_cycle.name, "ticks"),
        (pack_dags.name, "effects"),
        (sync_sites.name, "effects"),  # a silent CRIC keeps no tick waiting
        (run_effects.name, "effects"),
        (RUN_EFFECTS, "effects"),
        (evaluate_due.name, "celery"),
        (EVALUATE_DUE, "celery"),
        (evaluate_request.name, "verbs"),
        (EVALUATE_REQUEST, "verbs"),
    ],
)
def test_a_tick_does_not_wait_behind_hints(task: str, queue: str) -> None:
    assert app.amqp.router.route({}, task)["queue"].name == queue


def test_every_task_of_the_schedule_goes_to_a_queue_that_workers_serve() -> None:
    served = set(app.amqp.queues.consume_from)
    asked = {app.amqp.router.route({}, entry["task"])["queue"].name for entry in app.conf.beat_schedule.values()}
    assert asked <= served == {"celery", "ticks", "effects", "verbs"}
