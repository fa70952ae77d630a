"""The processes that talk to HTCondor live on, for one question at a time, and are replaced when they fail. On a real pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import services
from tests.support.adapter_pool import Pool
from tests.support.places import ROOT
from tests.support.waiting import until
from wms2.adapters import htcondor_process
from wms2.adapters.htcondor_process import Place, ask, ask_apart
from wms2.errors import ServiceUnavailable

pytestmark = pytest.mark.pool
LIMIT = 20.0
SCHEDD = {"op": "schedd_ad", "projection": ["Name"]}


@pytest.fixture
def place() -> Iterator[Place]:
    pool = Pool.from_environment()
    htcondor_process.end_all()
    yield Place(pool.schedd_name, pool.collector, pool.token_dir)
    htcondor_process.end_all()


def asked(place: Place, limit_seconds: float = LIMIT) -> str:
    (ad,) = ask(place, [SCHEDD], operation="test", limit_seconds=limit_seconds)
    return str(ad["Name"])


def children(of: int | None = None) -> set[int]:
    """Processes for HTCondor of this process that live."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words, line = (entry / "stat").read_text().rpartition(")")[2].split(), (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if int(words[1]) == (of or os.getpid()) and words[0] != "Z" and b"htcondor_child" in line:
            found.add(int(entry.name))
    return found


def test_questions_to_one_place_are_answered_by_one_process(place: Place) -> None:
    assert asked(place) == place.schedd
    (first,) = children()
    assert asked(place) == place.schedd
    assert children() == {first}


def test_a_process_that_has_been_killed_is_replaced_without_anybody_noticing(place: Place) -> None:
    asked(place)
    (first,) = children()
    os.kill(first, signal.SIGKILL)
    until(lambda: not children())
    assert asked(place) == place.schedd
    assert len(children()) == 1


def test_one_that_does_not_answer_is_ended_at_the_questions_limit_and_the_next_question_is_answered(place: Place) -> None:
    asked(place)
    (first,) = children()
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(ServiceUnavailable, match=r"did not answer within 0\.5 s") as caught:
        asked(place, limit_seconds=0.5)
    assert caught.value.code == "timeout"
    assert children() == set()
    assert asked(place) == place.schedd


def test_a_question_larger_than_a_pipe_holds_to_one_that_reads_nothing_is_given_up_too(place: Place) -> None:
    asked(place)
    (first,) = children()
    os.kill(first, signal.SIGSTOP)
    long = {"op": "query", "constraint": f'WMS2_DagID != "{"x" * 500_000}" && false', "projection": ["ClusterId"]}
    with pytest.raises(ServiceUnavailable, match="did not answer within"):
        ask(place, [long], operation="test", limit_seconds=0.5)
    assert ask(place, [long], operation="test", limit_seconds=LIMIT) == [[]]


def test_while_one_waits_for_an_answer_another_question_to_the_same_place_is_answered(place: Place) -> None:
    asked(place)
    (first,) = children()
    os.kill(first, signal.SIGSTOP)
    failed: list[ServiceUnavailable] = []

    def silent() -> None:
        try:
            asked(place, limit_seconds=LIMIT)
        except ServiceUnavailable as error:
            failed.append(error)

    thread = threading.Thread(target=silent)
    thread.start()
    until(lambda: not htcondor_process._waiting)
    assert asked(place) == place.schedd
    assert thread.is_alive(), "the first still waits"
    os.kill(first, signal.SIGKILL)
    thread.join()
    assert failed == [], "it was asked again by another process"


def test_an_error_ends_the_process_that_had_it(place: Place) -> None:
    asked(place)
    (first,) = children()
    nothing = {"op": "edit", "constraint": "false", "attribute": "JobPrio", "value": "1"}
    with pytest.raises(ServiceUnavailable):
        ask(place, [nothing], operation="test", limit_seconds=LIMIT)
    assert first not in children()
    assert asked(place) == place.schedd


@pytest.mark.alone
def test_a_schedd_that_was_restarted_is_found_by_whoever_knew_the_former_one(place: Place) -> None:
    queue = {"op": "query", "constraint": "false", "projection": ["ClusterId"]}
    ask(place, [SCHEDD, queue], operation="test", limit_seconds=LIMIT)
    services.schedd_kill()
    assert ask(place, [SCHEDD, queue], operation="test", limit_seconds=LIMIT)[1] == []
    with services.schedd_shut_down(), pytest.raises(ServiceUnavailable):
        asked(place)
    assert asked(place) == place.schedd


@pytest.mark.parametrize("age", ["_LIFE_SECONDS", "_IDLE_SECONDS"])
def test_one_that_is_old_or_was_not_asked_for_long_answers_no_more(
    place: Place, age: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(place)
    (first,) = children()
    monkeypatch.setattr(htcondor_process, age, 0.0)
    asked(place)
    assert first not in children()


def test_one_that_nobody_asks_ends_by_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(htcondor_process, "_MARGIN_SECONDS", 0.0)
    monkeypatch.setattr(htcondor_process, "_IDLE_SECONDS", 0.5)
    asked(place)
    until(lambda: not children())
    monkeypatch.setattr(htcondor_process, "_IDLE_SECONDS", 60.0)
    assert asked(place) == place.schedd, "also where it ended just before it would have been asked"


def test_each_question_apart_has_a_process_that_is_gone_afterwards(place: Place) -> None:
    asked(place)
    (first,) = children()
    for _ in range(2):
        assert ask_apart(place, [SCHEDD], operation="test", limit_seconds=LIMIT)
        assert children() == {first}


def test_a_process_that_was_forked_has_its_own_and_leaves_its_parents_alone(place: Place) -> None:
    asked(place)
    (first,) = children()
    pid = os.fork()
    if pid == 0:  # what fails here must not go on as a second pytest
        code = 1
        try:
            code = 0 if asked(place) == place.schedd and children().isdisjoint({first}) and len(children()) == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    asked(place)
    assert children() == {first}


PROGRAM = """
import os, sys
from wms2.adapters.htcondor_process import Place, ask
ask(Place(*sys.argv[1:4]), [{"op": "schedd_ad", "projection": ["Name"]}], operation="test", limit_seconds=20)
if os.fork() == 0:  # a process that was forked later has the pipes too, but for its own tidying up
    sys.stdin.readline()
    os._exit(0)
print("asked", flush=True)
sys.stdin.readline()
"""


def test_one_ends_with_the_process_that_had_asked_it_whatever_that_has_forked(place: Place) -> None:
    program = [sys.executable, "-c", PROGRAM, place.schedd, place.collector, place.token_dir]
    with subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "asked\n"
        (child,) = children(process.pid)
        process.send_signal(signal.SIGKILL)
        until(lambda: _is_gone(child))
        assert process.stdin is not None
        process.stdin.close()


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
