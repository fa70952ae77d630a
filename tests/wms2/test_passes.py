"""One row of a pass that breaks: logged, counted and said on the row, and the others have their turn."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import OperationalError

from wms2.errors import LeaseLost, ServiceUnavailable, StaleState
from wms2.metrics import LOCKS_REFUSED_TOTAL, ROWS_BROKEN_TOTAL
from wms2.passes import row_by_itself

LOCKED = OperationalError("locked")
LOCKED.__cause__ = psycopg.errors.LockNotAvailable()


def a_pass(*rows: Exception | None, tell: Any = None) -> tuple[list[int], list[str]]:
    """Over rows that raise these; which were done, and what was said on which."""
    done: list[int] = []
    said: list[str] = []
    for number, error in enumerate(rows):
        with row_by_itself("test", number, tell or said.append):
            if error is not None:
                raise error
            done.append(number)
    return done, said


def broken() -> float:
    return ROWS_BROKEN_TOTAL.labels("test")._value.get()


def test_what_breaks_is_logged_counted_and_said_and_the_others_are_done(caplog: pytest.LogCaptureFixture) -> None:
    before = broken()
    done, said = a_pass(None, TypeError("an unknown key"), ValueError("nul \0"), None)
    assert (done, said) == ([0, 3], ["TypeError: an unknown key", "ValueError: nul "])
    assert broken() == before + 2
    logged: list[Any] = [(record.msg, record.levelname) for record in caplog.records]
    assert [(message["row"], level) for message, level in logged] == [("1", "ERROR"), ("2", "ERROR")]


def test_what_is_no_defect_is_no_broken_row() -> None:
    before, locked = broken(), LOCKS_REFUSED_TOTAL.labels("test")._value.get()
    done, said = a_pass(ServiceUnavailable("dbs", "files", "no answer"), StaleState("changed"), LOCKED, None)
    assert (done, said) == ([3], ["dbs files: no answer"])
    assert (broken(), LOCKS_REFUSED_TOTAL.labels("test")._value.get()) == (before, locked + 1)


@pytest.mark.parametrize("error", [LeaseLost("another leads"), OperationalError("the database is away")])
def test_without_the_lease_or_the_database_the_pass_ends(error: Exception) -> None:
    with pytest.raises(type(error)):
        a_pass(error, None)


def test_where_it_cannot_be_said_the_others_are_done_all_the_same() -> None:
    def tell(what: str) -> None:
        raise RuntimeError("no such row")

    before = broken()
    done, _ = a_pass(TypeError("an unknown key"), None, tell=tell)
    assert (done, broken()) == ([1], before + 2)
