"""Celery tasks of requests_app: thin carriers. Beat fires ``run_lifecycle_cycle``, which calls ``evaluate_due``; operations nudge
``evaluate_request``, which has a queue of its own.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from celery import shared_task
from celery.signals import beat_init, worker_init

from requests_app.installation import process_begin
from requests_app.lifecycle import evaluator
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.lifecycle.cycle import run_cycle
from requests_app.lifecycle.dark_files import dark_files_check
from requests_app.lifecycle.packing import dags_pack, requests_archive
from requests_app.lifecycle.rucio_account import rucio_account_check
from requests_app.lifecycle.storage_checks import cases_alert, storage_checks_run
from requests_app.reqmgr2.following import reqmgr2_poll
from requests_app.work.harvesting import harvests_run
from wms2.errors import ConfigurationError
from wms2.runtime.notify import (
    CHECK_STORAGE,
    EVALUATE_DUE,
    EVALUATE_REQUEST,
    PACK_DAGS,
    POLL_REQMGR2,
    REMOVE_LEFTOVERS,
    RUN_CYCLE,
)

#: A worker then takes another task, e.g. effects.
TURN_SECONDS = 10.0


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


@shared_task(name=RUN_CYCLE, ignore_result=True)
def run_lifecycle_cycle() -> bool:
    """One tick: lead if we may, admit, hand out evaluations; observe the schedds when it is time, which is what counts."""
    return run_cycle()


@shared_task(name=EVALUATE_DUE, ignore_result=True)
def evaluate_due() -> None:
    """What is due, a batch after the other, for some time."""
    evaluator.evaluate_due(seconds=TURN_SECONDS)


@shared_task(name=EVALUATE_REQUEST, ignore_result=True)
def evaluate_request(pk: str) -> None:
    """What an operator has just asked of one request; what may take minutes is left to others."""
    evaluator.evaluate_one(uuid.UUID(pk), light=True)


_task = partial(shared_task, ignore_result=True)
pack_dags = _task(name=PACK_DAGS)(dags_pack)
archive_requests = _task(name="requests_app.tasks.archive_requests")(requests_archive)
remove_leftovers = _task(name=REMOVE_LEFTOVERS)(leftovers_remove)
check_storage = _task(name=CHECK_STORAGE)(storage_checks_run)
remind_of_cases = _task(name="outputs_app.tasks.remind_of_cases")(cases_alert)
harvest = _task(name="requests_app.tasks.harvest")(harvests_run)
look_for_dark_files = _task(name="requests_app.tasks.look_for_dark_files")(dark_files_check)
look_at_rucio_account = _task(name="requests_app.tasks.look_at_rucio_account")(rucio_account_check)
poll_reqmgr2 = _task(name=POLL_REQMGR2)(reqmgr2_poll)
