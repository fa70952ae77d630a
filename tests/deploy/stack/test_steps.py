"""Progress lines and set-up commands."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.stack.errors import StackError
from deploy.stack.steps import locked, run_logged, side_by_side
from tests.support.places import ROOT

SPEAKER = """
import sys
from deploy.stack.steps import say
sys.stdin.readline()
for number in range(3):
    say(f"line {number}")
open(sys.argv[1], "w").write("went on")
"""


def run(tmp_path: Path, *argv: str, seconds: float = 60.0) -> None:
    run_logged(argv, log=tmp_path / "log", environment={"PATH": os.defpath}, cwd=tmp_path, seconds=seconds)


def test_a_reader_who_left_does_not_stop_the_speaker(tmp_path: Path) -> None:
    """`make stop | head`: what is being stopped must still be stopped."""
    argv = [sys.executable, "-c", SPEAKER, str(tmp_path / "end")]
    speaker = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert speaker.stdout is not None
    speaker.stdout.close()
    speaker.communicate(b"\n", timeout=60)
    assert (tmp_path / "end").read_text() == "went on"


def test_a_failing_command_is_reported_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"(?s)failed with code 7.*the reason"):
        run(tmp_path, "sh", "-c", "echo the reason >&2; exit 7")


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="longer than 1 s"):
        run(tmp_path, "sh", "-c", "sleep 600 & echo $! > pid; wait", seconds=1.0)
    child = int((tmp_path / "pid").read_text())
    state, deadline = Path(f"/proc/{child}/stat"), time.monotonic() + 30
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":  # SIGKILL is on its way
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_set_ups_of_one_thing_follow_each_other(tmp_path: Path) -> None:
    order: list[str] = []

    def hold(name: str) -> None:
        with locked(tmp_path / "lock", "thing"):
            order.append(f"{name} in")
            order.append(f"{name} out")

    side_by_side(lambda: hold("a"), lambda: hold("b"))
    assert order in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])
