"""Passes over many rows: one that breaks keeps no other from its turn.

Owns no pass and no row: what broke is logged with its traceback, counted by pass, and said on the row by the caller's ``report``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import structlog
from django.db import connection, transaction

from wms2.errors import LeaseLost, ServiceUnavailable, StaleState
from wms2.metrics.series import LOCKS_REFUSED_TOTAL, ROWS_BROKEN_TOTAL
from wms2.runtime.locks import DATABASE_AWAY, lock_refused

log = structlog.get_logger(__name__)
#: Characters of an error that a row keeps.
MOST_CHARACTERS = 4000


@contextmanager
def row_by_itself(step: str, row: object, report: Callable[[str], object]) -> Iterator[None]:
    """One row of a pass. What a block writes within a transaction of the whole pass has a savepoint of its own, the block's.

    Args:
        step: the pass; a label of ``wms2_rows_broken_total``.
        report: writes the error to the row, where an operator reads it.

    Raises:
        LeaseLost: the caller no longer leads; nothing more is to be written.
        django.db.OperationalError, django.db.InterfaceError: the database does not answer.
    """
    try:
        yield
    except LeaseLost:
        raise
    except StaleState as error:
        log.info("a row has changed meanwhile, looked at again later", step=step, row=str(row), why=str(error))
    except ServiceUnavailable as error:
        log.warning("a service does not answer, tried again later", step=step, row=str(row), error=str(error))
        _report(step, row, report, str(error))
    except DATABASE_AWAY as error:
        if not lock_refused(error):
            raise
        LOCKS_REFUSED_TOTAL.labels(step).inc()
        log.warning("locked by another process, tried again later", step=step, row=str(row), error=str(error).partition("\n")[0])
    except Exception as error:
        ROWS_BROKEN_TOTAL.labels(step).inc()
        log.exception("one row of a pass broke, the others go on", step=step, row=str(row))
        _report(step, row, report, f"{type(error).__name__}: {error}")


def _report(step: str, row: object, report: Callable[[str], object], what: str) -> None:
    """Where even that cannot be written, the log and the count have it."""
    savepoint = transaction.atomic() if connection.in_atomic_block else nullcontext()  # threads that only ask open no session
    with row_by_itself(step, row, lambda further: None), savepoint:
        report(what.replace("\0", "")[:MOST_CHARACTERS])  # which PostgreSQL refuses
