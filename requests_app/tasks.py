"""Celery tasks of requests_app: thin carriers. Beat fires ``run_lifecycle_cycle``, which calls ``evaluate_due``; operations
notify ``evaluate_request``, which has a queue of its own.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from celery.signals import beat_init, worker_init

from requests_app.harvesting.jobs import harvests_run
from requests_app.installation import process_begin
from requests_app.lifecycle import evaluator
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.lifecycle.cycle import run_cycle
from requests_app.lifecycle.dark_files import dark_files_check
from requests_app.lifecycle.packing import dags_pack, requests_archive
from requests_app.lifecycle.rucio_account import rucio_account_check
from requests_app.lifecycle.storage_checks import cases_alert, storage_checks_run
from requests_app.notifying.compose import messages_compose
from requests_app.notifying.send import messages_send
from requests_app.reqmgr2.following import reqmgr2_poll
from wms2.errors import ConfigurationError
from wms2.runtime.locks import unless_locked
from wms2.runtime.notify import (
    CHECK_STORAGE,
    EVALUATE_DUE,
    EVALUATE_REQUEST,
    PACK_DAGS,
    POLL_REQMGR2,
    REMOVE_LEFTOVERS,
    RUN_CYCLE,
)
from wms2.runtime.periodic import ALERTS_SECONDS, REQMGR2_SECONDS, SITE_SECONDS, TICK_SECONDS, task

#: A worker then takes another task, e.g. effects.
TIME_SLICE_SECONDS = 10.0


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


@task(RUN_CYCLE, queue="ticks", beat="lifecycle", every=TICK_SECONDS)
def run_lifecycle_cycle() -> bool:
    """One tick: lead if we may, admit, hand out evaluations; observe the schedds when it is time, which is what counts."""
    return run_cycle()


@task(EVALUATE_DUE)
def evaluate_due() -> None:
    """What is due, a batch after the other, for some time."""
    evaluator.evaluate_due(seconds=TIME_SLICE_SECONDS)


@task(EVALUATE_REQUEST, queue="verbs")
def evaluate_request(pk: str) -> None:
    """What an operator has just asked of one request; what may take minutes is left to others."""
    evaluator.evaluate_one(uuid.UUID(pk), light=True)


@task("requests_app.tasks.send_alerts", queue="effects", beat="alerts", every=ALERTS_SECONDS)
def send_alerts() -> None:
    """Make the messages that are due, then send what waits, for some time."""
    with unless_locked("alerts"):  # another worker is at it
        messages_compose()
    messages_send(seconds=TIME_SLICE_SECONDS)


_TASKS = __name__  # as Celery names tasks
_effects = partial(task, queue="effects")
pack_dags = _effects(PACK_DAGS, beat="packs", every=600.0, can_wait=True)(dags_pack)
archive_requests = _effects(f"{_TASKS}.archive_requests", beat="archive", every=3600.0, can_wait=True)(requests_archive)
remove_leftovers = _effects(REMOVE_LEFTOVERS, beat="leftovers", every=SITE_SECONDS)(leftovers_remove)
check_storage = _effects(CHECK_STORAGE, beat="storage", every=SITE_SECONDS)(storage_checks_run)
remind_of_cases = _effects("outputs_app.tasks.remind_of_cases", beat="cases", every=600.0, can_wait=True)(cases_alert)
harvest = _effects(f"{_TASKS}.harvest", beat="harvests", every=SITE_SECONDS)(harvests_run)
look_for_dark_files = _effects(f"{_TASKS}.look_for_dark_files", beat="dark-files", every=3600.0)(dark_files_check)
look_at_rucio_account = _effects(f"{_TASKS}.look_at_rucio_account", beat="rucio-account", every=600.0)(rucio_account_check)
poll_reqmgr2 = _effects(POLL_REQMGR2, beat="reqmgr2", every=REQMGR2_SECONDS)(reqmgr2_poll)
