"""Tests side by side on one stack: what each process of a run has for itself, what may run beside what, and in which order.

A process of pytest-xdist has its own database from pytest-django. Here it gets its own instance id, so that no process sees or
removes another's DAGs, its own database of the broker, and its own submit directory. Sites, storage, DBS and Rucio are shared:
names there are new for each test.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from _pytest.nodeid import coerce_node_id
from django.conf import settings

#: How many times longer a wait may last than on a machine with nothing else to do. It is spent only when a test fails.
PATIENCE = 3.0
#: Tests that take the pool away, one after the other.
_WHOLE_POOL = "whole pool"
#: The fixture of the second pool, which is one process's alone.
_SECOND_POOL = "second_pool"
_TESTS = Path(__file__).parents[1]
_ONE_BY_ONE = _TESTS / "pool"


def set_apart() -> None:
    """Give this process what it must not share, if it is one of several."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not process or not os.environ.get("WMS2_INSTANCE"):
        return
    number = int(re.sub(r"\D", "", process)) + 1  # database 0 is for runs in one process
    os.environ["WMS2_INSTANCE"] += f"-{process}"
    broker = re.sub(r"virtual_host=\d+", f"virtual_host={number}", os.environ["WMS2_BROKER_URL"])
    os.environ["WMS2_BROKER_URL"] = settings.CELERY_BROKER_URL = broker
    if "WMS2_SUBMIT_ROOT" in os.environ:
        root = Path(os.environ["WMS2_SUBMIT_ROOT"]) / process
        root.mkdir(parents=True, exist_ok=True)
        os.environ["WMS2_SUBMIT_ROOT"] = str(root)


def arrange(items: list[pytest.Item]) -> None:
    """Say which tests stay together, and let those begin first that would otherwise be waited for at the end.

    Each test of ``tests/pool`` goes to whoever is free, as far as its fixtures allow; all others stay with their file.
    """
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if item.get_closest_marker("whole_pool"):
            _put(item, _WHOLE_POOL)
        elif mark is not None:
            _put(item, mark.args[0])
        elif _SECOND_POOL in getattr(item, "fixturenames", ()):
            _put(item, _SECOND_POOL)
        elif _ONE_BY_ONE not in item.path.parents:
            _put(item, str(item.path.relative_to(_TESTS)))
    items.sort(key=_rank)  # within a rank as they were


def _put(item: pytest.Item, group: str) -> None:
    """The scheduler reads a test's group from its name. xdist 3.8 writes it to where pytest 9 does not look any more."""
    item._id = coerce_node_id(f"{item.nodeid}@{group}")


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("whole_pool"):
        return 0
    for rank, name in enumerate(("long", "slow"), start=1):
        if item.get_closest_marker(name):
            return rank
    return 3
