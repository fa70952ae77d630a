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
from django.conf import settings

#: How many times longer a wait may last than on a machine with nothing else to do. It is spent only when a test fails.
PATIENCE = 3.0
#: Tests that use the stack's services.
ON_THE_STACK = ("pool", "rucio", "simulators")
#: Every process of a run that takes the pool away waits for the others of its kind.
_WHOLE_POOL = "whole-pool"
_WITHOUT_GROUP = Path(__file__).parents[1] / "pool"


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
        if item.get_closest_marker("whole_pool"):
            item.add_marker(pytest.mark.xdist_group(_WHOLE_POOL))
        elif not item.get_closest_marker("xdist_group") and _WITHOUT_GROUP not in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_rank)  # within a rank as they were


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("whole_pool"):
        return 0
    for rank, name in enumerate(("long", "slow"), start=1):
        if item.get_closest_marker(name):
            return rank
    return 3
