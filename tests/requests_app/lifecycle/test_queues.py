"""Ticks, operations, effects and hints wait in queues of their own, and a worker that is told nothing else serves all of them."""

from __future__ import annotations

from outputs_app.tasks import run_effects
from requests_app.tasks import evaluate_due, evaluate_request, pack_dags, run_lifecycle_cycle
from sites_app.tasks import sync_sites
from wms2.celery import app
from wms2.runtime.notify import EVALUATE_DUE, EVALUATE_REQUEST, RUN_EFFECTS


def test_a_tick_does_not_wait_behind_hints_and_every_task_of_the_schedule_is_served() -> None:
    queues = {
        **dict.fromkeys((pack_dags.name, run_effects.name, RUN_EFFECTS), "effects"),
        sync_sites.name: "effects",  # a silent CRIC keeps no tick waiting
        run_lifecycle_cycle.name: "ticks",
        **dict.fromkeys((evaluate_due.name, EVALUATE_DUE), "celery"),
        **dict.fromkeys((evaluate_request.name, EVALUATE_REQUEST), "verbs"),
    }
    assert {task: app.amqp.router.route({}, task)["queue"].name for task in queues} == queues
    served = set(app.amqp.queues.consume_from)
    asked = {app.amqp.router.route({}, entry["task"])["queue"].name for entry in app.conf.beat_schedule.values()}
    assert asked <= served == {"celery", "ticks", "effects", "verbs"}
