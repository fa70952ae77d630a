"""Which process of a run gets which tests: the pool beside the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from tests.support.cases import in_one_test
from tests.support.scheduling import PoolBesideTheRest
from tests.support.side_by_side import POOL_PROCESSES, Kind, kind_of, name_of, unit_of


class Node:
    """A process, as the scheduler knows it: it runs a test when it knows the next one, or that there is none."""

    def __init__(self, number: int, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.tests, self.given, self.shutting_down = tests, list[int](), False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def runs(self) -> int | None:
        """The test that runs."""
        return self.given[0] if len(self.given) > 1 or (self.given and self.shutting_down) else None


class Config:
    """What the scheduler asks of pytest's."""

    option = SimpleNamespace(maxprocesses=None, loadscopereorder=False)

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def getvalue(self, name: str) -> list[str]:
        assert name == "tx"
        return ["popen"] * self._processes


def steps(tests: list[str], processes: int) -> Iterator[dict[str, str]]:
    """The tests that run at a time, by process, until all have run; the process of the highest number is the quickest."""
    config: Any = Config(processes)
    scheduler = PoolBesideTheRest(config, Producer("test"))
    nodes: list[Any] = [Node(number, tests) for number in range(processes)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    while running := {node.gateway.id: tests[node.runs] for node in nodes if node.runs is not None}:
        yield running
        node = [node for node in nodes if node.runs is not None][-1]
        scheduler.mark_test_complete(node, node.given.pop(0))
    assert not any(node.given for node in nodes), "they wait for tests that do not come"


@in_one_test("processes", [1, 2, POOL_PROCESSES, POOL_PROCESSES + 1, POOL_PROCESSES + 3])
@in_one_test("pool, rest", [(20, 20), (20, 0), (3, 2), (0, 9), (7, 7), (1, 1)])
def test_each_test_runs_once_and_the_pool_is_used_beside_the_rest(processes: int, pool: int, rest: int) -> None:
    tests = [
        *(f"pool.py::test_{number}@pool {number}" for number in range(pool)),
        *(f"rest{number % 3}.py::test_{number}@rest rest{number % 3}.py" for number in range(rest)),
    ]
    ended: list[str] = []
    before: dict[str, str] = {}
    for running in steps(tests, processes):
        kinds = [kind_of(unit_of(test)) for test in running.values()]
        if not before and processes > POOL_PROCESSES and pool >= 2 * POOL_PROCESSES and rest:
            assert kinds.count(Kind.POOL) == POOL_PROCESSES and Kind.REST in kinds, "the pool begins beside the rest"
        ended += [test for node, test in before.items() if running.get(node) != test]
        before = running
    ended += before.values()
    assert sorted(ended) == sorted(tests)


@pytest.mark.parametrize("path", ["browser/test_onboarding.py", "pool/test_two_pools.py", "wms2/test_any.py"])
def test_the_second_pool_is_never_used_by_two_processes(path: str) -> None:
    item: Any = SimpleNamespace(
        get_closest_marker=lambda name: None, path=Path(__file__).parents[2] / path, nodeid=path, fixturenames=["second_pool"]
    )
    assert name_of(item) == "second_pool"
