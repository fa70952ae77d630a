"""Counters of several processes: every kind's are in one sum, a dead process's stay in it, its files are the next one's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.scraping import scrape, value
from wms2.metrics import files

pytestmark = pytest.mark.django_db
#: A process that counts what it is told on its standard input, and says when it has.
COUNTING = """
import sys
import django; django.setup()
from wms2.metrics import series as metrics
for line in sys.stdin:
    metrics.CYCLES_TOTAL.labels("ok").inc(int(line))
    metrics.CYCLE_SECONDS.observe(int(line))
    print("counted", flush=True)
"""


@contextmanager
def process(root: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    (root / kind).mkdir(exist_ok=True)
    environment = {**os.environ, files.ROOT: str(root), files.OWN: str(root / kind)}
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
    monkeypatch.setenv(files.ROOT, str(tmp_path))
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


def test_what_a_killed_process_counted_stays_and_the_next_one_goes_on_in_its_files(reader: object, root: Path) -> None:
    with process(root, "worker") as living:
        count(living, 1)
        for number in (20, 300):
            with process(root, "worker") as killed:
                count(killed, number)
                killed.send_signal(signal.SIGKILL)
                killed.wait(30)
        found = scrape(reader)  # type: ignore[arg-type]
        assert value(found, "wms2_lifecycle_cycles_total", outcome="ok") == 321
        assert value(found, "wms2_lifecycle_cycle_seconds_count") == 3
        assert value(found, "wms2_lifecycle_cycle_seconds_bucket", le="10.0") == 1
        owners = {file.stem.rpartition("_")[2] for file in (root / "worker").glob("*.db")}
        assert owners == {"0", "1"}, "never more files than processes at the same time"
        count(living, 1000)
        assert cycles(reader) == 1321, "the living process goes on in its own file"


def test_a_child_counts_in_files_of_its_own(tmp_path: Path) -> None:
    number = files.numbered(tmp_path)
    assert (number(), number()) == (0, 0)
    reported, report = os.pipe()
    child = os.fork()
    if not child:
        os.write(report, str(number()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reported, 10) == b"1"
    os.close(reported)
    os.close(report)
