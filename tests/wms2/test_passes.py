"""One row of a pass that breaks: logged, counted and said on the row, and the others have their turn."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError

from wms2.errors import LeaseLost, ServiceUnavailable, StaleState
from wms2.metrics import LOCKS_REFUSED_TOTAL, ROWS_BROKEN_TOTAL
from wms2.passes import row_by_itself

ROOT = Path(__file__).parents[2]
#: Loops over rows that are of one request, DAG or block, or that call nothing outside and write one statement.
ONE_BY_NATURE = {
    "dags_app.services.claims.claims_of", "dags_app.services.submit.dag_adopt", "outputs_app.blocks.blocks_open",
    "outputs_app.invalidation.parts_of", "outputs_app.invalidation.parts_ask", "outputs_app.reconciliation.rows.blocks_believed",
    "requests_app.lifecycle.cleaner._write_down", "requests_app.lifecycle.dark_files.dark_files_look",
    "requests_app.lifecycle.packing._archive", "requests_app.lifecycle.storage_checks._task", "sites_app.pools._slots_heard",
    "sites_app.guard._schedds", "sites_app.selectors.sites_by_rse", "sites_app.selectors.rses_of",
    "sites_app.sync.site_statuses_sync", "wms2.work.workers.pool_problems", "wms2.work.workers.pools_reconcile",
}  # fmt: skip
PASSES = ("requests_app", "requests_app/lifecycle", "requests_app/reqmgr2", "requests_app/admission", "outputs_app", "sites_app",
          "outputs_app/reconciliation", "outputs_app/validation", "dags_app/services", "wms2/work")  # fmt: skip
#: Answers that count as a whole: a file, lumi, lock or rule that is left out of one would be lost, doubled or deleted.
WHOLE = {
    "_ERRORS", "_DATASETS", "_BLOCKS", "_CONFIGS", "_FILES", "_LFNS", "_LUMIS", "_PARENTS", "RULES", "CONTENT", "BLOCKS",
    "BLOCK_REPLICAS", "FILE_REPLICAS", "LOCKS", "RSES", "_TRANSFERS",
}  # fmt: skip
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


def test_every_pass_over_rows_takes_each_by_itself() -> None:
    """One that is not listed above breaks for all at the first bad row: wrap its body in ``row_by_itself``."""
    found = set()
    for path in (each for folder in PASSES for each in (ROOT / folder).glob("*.py")):
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        for function, loop in ((each, node) for each in functions for node in ast.walk(each) if isinstance(node, ast.For)):
            if ".objects" in ast.unparse(loop.iter) and "by_itself" not in "".join(map(ast.unparse, loop.body)):
                found.add(".".join((*path.relative_to(ROOT).with_suffix("").parts, function.name)))
    assert found == ONE_BY_NATURE


def test_every_list_that_a_service_answers_is_read_row_by_row_or_counts_as_a_whole() -> None:
    text = "".join(path.read_text() for path in (ROOT / "wms2" / "adapters").glob("*.py"))
    assert set(re.findall(r"^(\w+)\b.* = TypeAdapter\(list\[(?!Any)", text, re.MULTILINE)) == WHOLE
