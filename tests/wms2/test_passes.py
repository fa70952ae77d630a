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
from wms2.metrics.series import LOCKS_REFUSED_TOTAL, ROWS_BROKEN_TOTAL
from wms2.runtime.passes import row_by_itself

ROOT = Path(__file__).parents[2]
#: Loops over rows that are of one request, DAG, block or answer, or that make values of them and write nothing row by row.
ONE_BY_NATURE = {
    "dags_app.services.activity._know", "dags_app.services.submit._found_at", "outputs_app.checks.rucio_account.account_problems",
    "outputs_app.blocks.filling.blocks_register_sealed", "outputs_app.checks.cases.cases_open",
    "outputs_app.effects.invalidation.invalidation_ask", "outputs_app.effects.invalidation.parts_ask",
    "outputs_app.effects.invalidation.parts_of",
    "outputs_app.effects.taking_back._rule_unruled", "outputs_app.effects.taking_back._rules_release",
    "outputs_app.effects.taking_back._dbs_invalidate", "outputs_app.blocks.placements.placement_set",
    "outputs_app.checks.reconciliation.rule_check._gone",
    "outputs_app.checks.reconciliation.rule_check._gone_from_disk", "outputs_app.checks.reconciliation.rule_check._places",
    "outputs_app.checks.reconciliation.run._compare_dataset", "outputs_app.effects.source_rules.source_rules_check",
    "outputs_app.checks.validation.catalogues._others", "outputs_app.checks.validation.catalogues.sources",
    "outputs_app.checks.validation.process._checks_begin", "outputs_app.checks.validation.process._waiting_for",
    "requests_app.admission.queue._start_some", "requests_app.admission.queue.pick",
    "requests_app.lifecycle.alert_conditions._requests", "requests_app.lifecycle.alert_conditions._schedds",
    "requests_app.lifecycle.cleaner._write_down", "requests_app.lifecycle.cleaning._tidy",
    "requests_app.lifecycle.packing._archive", "requests_app.lifecycle.storage_checks._task",
    "sites_app.guard._schedds", "sites_app.pools._schedds_heard", "sites_app.pools._slots_heard", "sites_app.services._avoided",
    "sites_app.services.site_bans_expire", "sites_app.sync.site_statuses_sync", "wms2.work.resources.leases_expire",
    "wms2.work.workers.pools_reconcile",
}  # fmt: skip
#: Calls that no row breaks.
HARMLESS = {"add", "append", "extend", "get", "items", "keys", "len", "list", "max", "min", "pop", "set", "setdefault", "sorted",
            "startswith", "str", "sum", "tuple", "union", "update", "values", "field"}  # fmt: skip
ROWS = re.compile(r"\.objects\b|\.(filter|exclude|select_related|select_for_update)\(")
PASSES = ("requests_app", "requests_app/lifecycle", "requests_app/reqmgr2", "requests_app/admission", "outputs_app", "sites_app",
          "outputs_app/blocks", "outputs_app/effects", "outputs_app/checks", "outputs_app/checks/reconciliation",
          "outputs_app/checks/validation", "dags_app/services", "wms2/work")  # fmt: skip
#: Answers that count as a whole: a file, lumi, lock or rule that is left out of one would be lost, doubled or deleted.
WHOLE = {
    "DbsErrorRecord", "DatasetInfo", "BlockInfo", "OutputConfig", "DbsFileInfo", "DbsLfnRow", "DbsFileLumiRow", "FileParent",
    "RuleInfo", "ContentRow", "BlockRow", "BlockReplicaRow", "FileReplicaRow", "LockRow", "RseRow", "TransferDocument",
    "Campaign",
}  # fmt: skip
LOCKED = OperationalError("locked")
LOCKED.__cause__ = psycopg.errors.LockNotAvailable()


def a_pass(*rows: Exception | None, report: Any = None) -> tuple[list[int], list[str]]:
    """Over rows that raise these; which were done, and what was said on which."""
    done: list[int] = []
    said: list[str] = []
    for number, error in enumerate(rows):
        with row_by_itself("test", number, report or said.append):
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
    def report(what: str) -> None:
        raise RuntimeError("no such row")

    before = broken()
    done, _ = a_pass(TypeError("an unknown key"), None, report=report)
    assert (done, broken()) == ([1], before + 2)


def loops_over_rows(module: ast.Module) -> set[str]:
    """Functions with a loop over rows, also those that a name stands for, whose body calls what one bad row may break for all."""
    found = set()
    for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        made: dict[str, ast.expr] = {}
        for given in (node for node in ast.walk(function) if isinstance(node, ast.Assign)):
            made |= {name.id: given.value for name in ast.walk(given.targets[0]) if isinstance(name, ast.Name)}
        for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
            calls = [node.func for each in loop.body for node in ast.walk(each) if isinstance(node, ast.Call)]
            names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
            apart = "by_itself" in "".join(map(ast.unparse, loop.body))
            if not apart and names - HARMLESS and is_rows(loop.iter, made):
                found.add(function.name)
    return found


def is_rows(expression: ast.expr, made: dict[str, ast.expr], depth: int = 3) -> bool:
    if ROWS.search(ast.unparse(expression)):
        return True
    names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} & made.keys()
    return depth > 0 and any(is_rows(made[name], made, depth - 1) for name in names)


def test_every_pass_over_rows_takes_each_by_itself() -> None:
    """One that is not listed above breaks for all at the first bad row: wrap its body in ``row_by_itself``."""
    paths = [path for folder in PASSES for path in (ROOT / folder).glob("*.py")]
    places = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    found = {f"{places[path]}.{name}" for path in paths for name in loops_over_rows(ast.parse(path.read_text()))}
    assert found == ONE_BY_NATURE


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("for row in Row.objects.all(): judge(row)", True),
        ("rows = list(Row.objects.filter(job=job)); kept = rows\n    for row in kept: judge(row)", True),
        ("for row in Row.objects.all():\n        with row_by_itself('rows', row, tell): judge(row)", False),
        ("for row in Row.objects.all(): told.append(row.pk)", False),
        ("for row in answer.rows: judge(row)", False),
    ],
)
def test_a_new_loop_over_rows_is_found(lines: str, found: bool) -> None:
    assert loops_over_rows(ast.parse(f"def look():\n    {lines}")) == ({"look"} if found else set())


def test_every_list_that_a_service_answers_is_read_row_by_row_or_counts_as_a_whole() -> None:
    text = "".join(path.read_text() for path in (ROOT / "wms2" / "adapters").glob("*.py"))
    assert set(re.findall(r"\(list\[(?:wire\.)?(?!Any\b)(\w+)\]", text)) == WHOLE
