"""Questions at the same time: nobody waits for the slowest, and whoever waits is called now and then."""

from __future__ import annotations

import threading

import pytest

from wms2.runtime import parallel as module
from wms2.runtime.parallel import side_by_side

PATIENCE = 20.0


def test_an_answer_is_given_out_while_another_question_is_not_answered_yet() -> None:
    may_answer = threading.Event()
    answers = side_by_side({"late": lambda: may_answer.wait(PATIENCE), "at once": lambda: True}, lambda: None)
    assert next(answers) == ("at once", True)
    may_answer.set()
    assert list(answers) == [("late", True)], "it was not waited for"


def test_while_nobody_answers_the_waiting_is_told_and_may_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.01)
    reported, may_answer = threading.Semaphore(0), threading.Event()

    def twice() -> None:
        reported.release()
        if may_answer.is_set():
            raise LookupError("enough")
        may_answer.set()

    with pytest.raises(LookupError, match="enough"):
        list(side_by_side({"silent": lambda: threading.Event().wait(0.5)}, twice))
    assert reported.acquire(timeout=0) and reported.acquire(timeout=0)


def test_a_question_that_breaks_is_told_to_whoever_asked() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(side_by_side({"one": broken}, lambda: None))
    assert list(side_by_side({}, broken)) == []
