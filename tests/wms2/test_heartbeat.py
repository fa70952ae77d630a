"""Leases that are kept alive beside the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from tests.support.calls import Script, stopping
from tests.support.waiting import until
from wms2.adapters.caller import Caller, retry_call
from wms2.errors import LeaseLost, ServiceUnavailable
from wms2.runtime import heartbeat
from wms2.runtime.heartbeat import lease_kept_alive
from wms2.runtime.parallel import side_by_side

LIFE = 60.0


def held() -> bool:
    return True


def calls(number: int = 1, stop: Callable[[float], None] = lambda _: None, seconds: float = 0.0) -> int:
    """Make calls one after the other, stopped before each for so long; how many went out."""
    made: list[int] = []
    for each in range(number):
        stop(seconds)
        try:
            retry_call(lambda each=each: made.append(each))
        except LeaseLost:
            break
    return len(made)


@pytest.mark.django_db
def test_between_two_beats_a_keeper_has_no_database_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan or a registration has two keepers: it would need three sessions for as long as it lasts."""
    pids: list[int] = []
    enough = threading.Event()

    def renew() -> bool:
        with connection.cursor() as cursor:
            pids.append(cursor.execute("SELECT pg_backend_pid()").fetchone()[0])
        if len(pids) == 3:
            enough.set()
        return True

    # many beats in a long life: a short one would be over while a busy machine opens a session, and the keeper would end
    monkeypatch.setattr(heartbeat, "_BEATS", 1800)
    with lease_kept_alive(renew, life_seconds=LIFE):
        assert enough.wait(60)
    assert len(set(pids)) == len(pids)


def test_a_process_that_was_stopped_for_longer_than_its_lease_lasts_makes_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = stopping(monkeypatch)
    with lease_kept_alive(held, life_seconds=LIFE):
        assert calls(3, stop, LIFE / 4) == 3
        assert calls(1, stop, LIFE / 4) == 0, "its life has passed since it was taken, and nothing has renewed it"
    assert calls() == 1, "who works under no lease is not stopped"


def test_the_lease_that_was_taken_long_before_the_work_begins_counts_from_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = stopping(monkeypatch)
    monkeypatch.setattr(heartbeat.clock, "now", timezone.now)
    with lease_kept_alive(held, life_seconds=LIFE, expires_at=timezone.now() + timedelta(seconds=10)):
        assert calls(2, stop, 6) == 1
    with lease_kept_alive(held, life_seconds=LIFE, expires_at=timezone.now() - timedelta(seconds=1)):
        assert not calls()


def test_a_pause_while_a_circuit_is_asked_for_or_between_two_tries_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = stopping(monkeypatch)
    slow, script = Caller("dbs", "slow circuit"), Script("never asked")
    monkeypatch.setattr(slow.breaker, "_admit", lambda *_: stop(LIFE) or False)
    with lease_kept_alive(held, life_seconds=LIFE), pytest.raises(LeaseLost):
        slow.call("block", script)
    again = Script(ServiceUnavailable("dbs", "block", "no answer"), "never asked")
    monkeypatch.setattr("wms2.adapters.caller.pause", lambda _: stop(LIFE))
    with lease_kept_alive(held, life_seconds=LIFE), pytest.raises(LeaseLost):
        retry_call(again)
    assert (script.calls, again.calls) == (0, 1)


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, ZeroDivisionError])
def test_a_lease_that_cannot_be_renewed_is_lost_when_its_life_is_over(error: type[Exception]) -> None:
    """Cut off from the database and not from DBS: another process may have it by then."""
    asked: list[int] = []

    def renew() -> bool:
        asked.append(1)
        raise error("the database does not answer")

    with lease_kept_alive(renew, life_seconds=0.3):
        assert calls() == 1
        until(lambda: not calls(), "its life has passed")
    assert len(asked) > 1, "it was tried again"


def test_what_goes_wrong_with_one_renewal_keeps_no_later_one_from_succeeding(monkeypatch: pytest.MonkeyPatch) -> None:
    enough, failures = threading.Event(), [OperationalError(), InterfaceError("connection already closed"), KeyError("ours")]
    closings = [InterfaceError("already closed")]

    def renew() -> bool:
        if failures:
            raise failures.pop()
        if not closings:
            enough.set()
        return True

    def close() -> None:
        if not failures and closings:
            raise closings.pop()

    monkeypatch.setattr(heartbeat, "connections", {"default": SimpleNamespace(close=close)})
    monkeypatch.setattr(heartbeat, "_BEATS", 300)
    with lease_kept_alive(renew, life_seconds=LIFE / 2):
        assert enough.wait(30)
        assert calls() == 1


def test_a_lease_that_another_process_was_given_is_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_BEATS", 6000)
    with lease_kept_alive(lambda: False, life_seconds=LIFE):
        until(lambda: not calls(), "it was asked for")


def test_threads_work_under_the_leases_of_the_thread_that_asks_and_not_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, ended, late = stopping(monkeypatch), threading.Event(), []

    def goes_on() -> int:
        ended.wait(30)
        late.append(calls())
        return 0

    with lease_kept_alive(held, life_seconds=LIFE):
        assert dict(side_by_side(dict.fromkeys("ab", calls), lambda: None)) == {"a": 1, "b": 1}
        questions = side_by_side({"quick": calls, "slow": goes_on}, lambda: None)
        assert next(questions) == ("quick", 1)
    ended.set()
    until(lambda: bool(late), "the thread that nobody waits for goes on")
    assert late == [0], "the work under the lease has ended"
    with lease_kept_alive(held, life_seconds=LIFE):
        stop(LIFE)
        assert dict(side_by_side(dict.fromkeys("ab", calls), lambda: None)) == {"a": 0, "b": 0}


_STOPPED = """
import sys
from wms2.runtime import heartbeat
from wms2.adapters.caller import retry_call
from wms2.errors import LeaseLost

class Nothing:
    def close(self): pass

heartbeat.connections = {"default": Nothing()}
with heartbeat.lease_kept_alive(lambda: True, life_seconds=1.0):
    print("begun", flush=True)
    sys.stdin.readline()
    try:
        retry_call(lambda: print("called", flush=True))
    except LeaseLost:
        print("refused", flush=True)
"""


def test_after_a_real_stop_the_first_call_is_not_made_although_no_renewal_has_failed(tmp_path: Path) -> None:
    """The keeper's thread was stopped too: it learns of nothing before the call would go out."""
    process = subprocess.Popen([sys.executable, "-c", _STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline().strip() == "begun"
        os.kill(process.pid, signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()
        threading.Event().wait(1.1)
        os.kill(process.pid, signal.SIGCONT)
        reported, _ = process.communicate(timeout=30)
        assert "refused" in reported and "called" not in reported
    finally:
        process.kill()
        process.wait()
