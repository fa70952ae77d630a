"""Tests side by side on one stack: what each process of a run has for itself, what may run beside what, and in which order.

A process of pytest-xdist has its own database (``databases.py``). Here it gets its own instance id, so that no process sees or
removes another's DAGs, its own database of the broker, and its own submit directory. Sites, storage, DBS and Rucio are shared:
names there are new for each test. ``scheduling.py`` hands the tests out.
"""

from __future__ import annotations

import json
import os
import re
from enum import StrEnum
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from _pytest.nodeid import coerce_node_id
from django.conf import settings

#: How many times longer a wait may last than on a machine with nothing else to do. It is spent only when a test fails.
PATIENCE = 3.0
#: So many processes take tests of the pool; further ones take others only, and leave the processor to the former.
POOL_PROCESSES = 5
#: Seconds of what takes long, by ``name_of`` (``python -m tests.support.costs`` writes it anew).
LONGEST = Path(__file__).with_name("longest.json")
#: The fixture of the second pool, which is one process's alone.
_SECOND_POOL = "second_pool"
_ASKS_FOR_A_POOL = re.compile(rf"\bmark\.pool\b|\b{_SECOND_POOL}\b")
_TESTS = Path(__file__).parents[1]
_ONE_BY_ONE = _TESTS / "pool"
#: Its files share a browser, which takes seconds of processor to start.
_TOGETHER = _TESTS / "browser"


class Kind(StrEnum):
    """What a unit of tests asks of the pool."""

    POOL = "pool"
    REST = "rest"


def takes_pool_tests(process: str) -> bool:
    """Whether this process of xdist (``gw3``) takes tests of the pool."""
    return _number(process) < POOL_PROCESSES


def is_for_others(path: Path, arguments: list[str]) -> bool:
    """Whether this process need not read a file or directory: it is given tests of the pool alone, and there are none. Only where
    whole directories are asked for.
    """
    process, processes = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if not process or not takes_pool_tests(process) or processes <= POOL_PROCESSES:
        return False
    return path not in _of_the_pool() and all(Path(each).is_dir() for each in arguments)


@cache
def _of_the_pool() -> set[Path]:
    """Files with tests of the pool, and all directories that they are in."""
    files = [
        path
        for path in _TESTS.rglob("test_*.py")
        if _ONE_BY_ONE in path.parents or _ASKS_FOR_A_POOL.search(path.read_text(encoding="utf-8"))
    ]
    return {*files, *(directory for path in files for directory in path.parents)}


def unit_of(nodeid: str) -> str:
    """The unit that a test belongs to, ``kind name``; ``arrange`` has put it behind the test's name."""
    return nodeid.rpartition("@")[2]


def kind_of(unit: str) -> Kind:
    """What its tests ask of the pool."""
    return Kind(unit.partition(" ")[0])


def _number(process: str) -> int:
    return int(re.sub(r"\D", "", process))


def set_apart() -> None:
    """Give this process what it must not share, if it is one of several."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not process or not os.environ.get("WMS2_INSTANCE"):
        return
    if not takes_pool_tests(process):
        os.nice(5)  # what waits for the pool has leases of seconds to keep
    number = _number(process) + 1  # database 0 is for runs in one process
    os.environ["WMS2_INSTANCE"] += f"-{process}"
    broker = re.sub(r"virtual_host=\d+", f"virtual_host={number}", os.environ["WMS2_BROKER_URL"])
    os.environ["WMS2_BROKER_URL"] = settings.CELERY_BROKER_URL = broker
    if "WMS2_SUBMIT_ROOT" in os.environ:
        root = Path(os.environ["WMS2_SUBMIT_ROOT"]) / process
        root.mkdir(parents=True, exist_ok=True)
        os.environ["WMS2_SUBMIT_ROOT"] = str(root)


def arrange(items: list[pytest.Item]) -> None:
    """Say which tests stay together, and let those begin first that would be waited for at the end.

    Each test of ``tests/pool`` goes to whoever is free, as far as its fixtures allow; all others stay with their file.
    """
    unread = {item.path for item in items if _kind(item) is Kind.POOL} - _of_the_pool()
    if unread:
        raise pytest.UsageError(f"write the mark `pool` in the file itself, not by another's: {', '.join(map(str, unread))}")
    names, seconds = {item: name_of(item) for item in items}, _seconds()
    ordered = sorted(items, key=lambda item: -seconds.get(names[item], 0.0))  # of equal ones as they were
    for item in items:
        group = names[item]
        # a test that is alone in its unit needs no name of it; its number is the same in every process
        number = crc32(item.nodeid.encode())
        item._id = coerce_node_id(f"{item.nodeid}@{_kind(item)} {number if group == item.nodeid else group}")
    items[:] = ordered


def name_of(item: pytest.Item) -> str:
    """Whatever stays in one process with this test: a group, a directory, a file, or the test itself."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None:
        return str(mark.args[0])
    if _SECOND_POOL in getattr(item, "fixturenames", ()):
        return _SECOND_POOL
    if _TOGETHER in item.path.parents:
        return _TOGETHER.name
    return item.nodeid if _ONE_BY_ONE in item.path.parents else str(item.path.relative_to(_TESTS))


def _kind(item: pytest.Item) -> Kind:
    uses = item.get_closest_marker("pool") or _SECOND_POOL in getattr(item, "fixturenames", ())
    return Kind.POOL if uses or _ONE_BY_ONE in item.path.parents else Kind.REST


@cache
def _seconds() -> dict[str, float]:
    found: dict[str, float] = json.loads(LONGEST.read_text(encoding="utf-8")) if LONGEST.exists() else {}
    return found
