"""The parts of a run of all tests: each test is in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from _pytest.mark.expression import Expression

from deploy.stack import suite
from tests.support.places import ROOT
from tests.support.side_by_side import is_for_others

STACK = ("pool", "rucio", "simulators")
OTHERS = ("alone", "slow", "deep", "fault")


def choices(names: tuple[str, ...], least: int = 0) -> Iterator[tuple[str, ...]]:
    for size in range(least, len(names) + 1):
        yield from combinations(names, size)


#: Marks as tests have them: what takes a service away names what it uses.
ON_THE_STACK = [a + b for a in choices(STACK, 1) for b in choices(OTHERS)]
ELSEWHERE = list(choices(("slow", "deep")))


def selected(part: tuple[str, ...], marks: tuple[str, ...]) -> bool:
    """Whether the part's expression takes a test with these marks."""
    return Expression.compile(part[part.index("-m") + 1]).evaluate(lambda name, **_: name in marks)


def test_each_test_runs_in_exactly_one_part_of_the_quick_or_of_the_long_run() -> None:
    quick, long = ([*suite.together(deep=deep).values(), *suite.apart(ROOT, deep=deep).values()] for deep in (False, True))
    parts = [*quick, *long]
    counts = {marks: [selected(part, marks) for part in parts].count(True) for marks in ON_THE_STACK + ELSEWHERE}
    assert set(counts.values()) == {1}, counts
    assert not any(selected(part, marks) for part in quick for marks in counts if "deep" in marks)


def test_each_entry_of_the_fault_catalogue_runs_in_exactly_one_part() -> None:
    entries = [("fault",), *(marks for marks in ON_THE_STACK if "fault" in marks)]
    counts = {marks: [selected(part, marks) for part in suite.catalogue(()).values()].count(True) for marks in entries}
    assert set(counts.values()) == {1}, counts


def test_files_of_a_part_are_found_by_the_marks_in_them() -> None:
    alone = suite.apart(ROOT)["alone"]
    assert "tests/pool/test_restarts.py" in alone
    assert "tests/pool/test_verbs.py" not in alone


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 0, 0], 0), ([0, 1, 0], 1), ([5, 0], 0), ([5, 5], 5), ([5, 1], 1), ([0, 2, 1], 2)],
)
def test_a_run_fails_when_a_part_failed_and_not_when_one_had_nothing_to_do(codes: list[int], expected: int) -> None:
    assert suite.outcome(codes) == expected


def test_processes_of_the_pool_read_no_file_without_tests_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "7")
    paths = ("pool", "pool/test_verbs.py", "wms2/adapters/test_htcondor_pool.py", "docs", "wms2/test_circuits.py")
    for process, expected in (("gw0", [True, True, True, False, False]), ("gw6", [True] * 5)):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", process)
        assert [not is_for_others(ROOT / "tests" / path, [str(ROOT / "tests")]) for path in paths] == expected
        assert not is_for_others(ROOT / "tests/docs", [__file__]), "a file that was asked for"


def test_tests_of_a_file_stay_in_one_process(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("there is one process only")
    assert request.node.nodeid.endswith("@rest deploy/stack/test_suite.py"), "the name by which xdist's scheduler knows a group"


def test_what_has_the_scope_of_a_package_is_in_one() -> None:
    """Elsewhere pytest keeps it until the process ends: a browser's event loop would stand in the way of other tests."""
    conftests = [path for path in (ROOT / "tests").rglob("conftest.py") if 'scope="package"' in path.read_text(encoding="utf-8")]
    assert conftests and [path for path in conftests if not path.with_name("__init__.py").is_file()] == []
