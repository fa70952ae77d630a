"""Counters of several processes: every kind's are in one sum, a dead process's stay in it, its files do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery.signals import beat_init, worker_init
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.places import ROOT
from tests.support.scraping import scrape, value
from wms2 import metrics_files, metrics_hooks

pytestmark = pytest.mark.django_db
#: A process that counts what it is told on its standard input, and says when it has.
COUNTING = """
import sys
import django; django.setup()
from wms2 import metrics
for line in sys.stdin:
    metrics.CYCLES_TOTAL.labels("ok").inc(int(line))
    metrics.CYCLE_SECONDS.observe(int(line))
    print("counted", flush=True)
"""


@contextmanager
def process(root: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    (root / kind).mkdir(exist_ok=True)
    environment = {**os.environ, metrics_files.ROOT: str(root), metrics_files.OWN: str(root / kind)}
    argv = [sys.executable, "-c", COUNTING]
    child = subprocess.Popen(argv, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def count(child: subprocess.Popen[str], number: int) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{number}\n")
    child.stdin.flush()
    assert child.stdout.readline() == "counted\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(metrics_files.ROOT, str(tmp_path))
    return tmp_path


def cycles(reader: object) -> float:
    return value(scrape(reader), "wms2_lifecycle_cycles_total", outcome="ok")  # type: ignore[arg-type]


def test_a_scrape_adds_up_a_worker_and_a_web_process_that_run(reader: object, root: Path) -> None:
    with process(root, "worker") as worker, process(root, "web") as web:
        count(worker, 3)
        count(web, 4)
        assert cycles(reader) == 7
        count(worker, 10)
        assert cycles(reader) == 17


def test_what_a_killed_process_counted_stays_and_its_files_become_one(reader: object, root: Path) -> None:
    with process(root, "worker") as living:
        count(living, 1)
        for number in (20, 300):
            with process(root, "worker") as killed:
                count(killed, number)
                killed.send_signal(signal.SIGKILL)
                killed.wait(30)
        before = scrape(reader)  # type: ignore[arg-type]
        assert value(before, "wms2_lifecycle_cycles_total", outcome="ok") == 321

        assert metrics_files.fold(root / "worker") > 0

        after = scrape(reader)  # type: ignore[arg-type]
        for key in before:
            if key[0].startswith(("wms2_lifecycle_cycles", "wms2_lifecycle_cycle_seconds")):
                assert after[key] == before[key], key
        assert value(after, "wms2_lifecycle_cycle_seconds_count") == 3
        assert value(after, "wms2_lifecycle_cycle_seconds_bucket", le="10.0") == 1
        owners = {metrics_files._owner(file) for file in (root / "worker").glob("*.db")}
        assert owners == {str(living.pid), metrics_files.FOLDED}
        count(living, 1000)
        assert cycles(reader) == 1321, "the living process goes on in its own file"


def test_folding_again_adds_to_what_was_folded(root: Path) -> None:
    for number in (5, 6):
        with process(root, "worker") as child:
            count(child, number)
        metrics_files.fold(root / "worker")
    registry = CollectorRegistry()
    registry.register(metrics_files.AllProcesses())
    assert 'wms2_lifecycle_cycles_total{outcome="ok"} 11.0' in generate_latest(registry).decode()
    assert metrics_files.fold(root / "worker") == 0


@pytest.mark.parametrize("signal", [worker_init, beat_init], ids=["worker", "beat"])
def test_workers_and_beat_fold_at_their_start(signal: Any) -> None:
    connected = [reference() for _, reference in signal.receivers]
    assert metrics_hooks.fold_at_start in connected
