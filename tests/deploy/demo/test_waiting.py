"""Waiting for the demo's requests: it tells changes, stops at once at a bad end, and gives up in time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from deploy.demo.check import limit_seconds
from deploy.demo.waiting import End, Progress, Waited, judge, wait
from tests.support.calls import Clock


@dataclass(frozen=True)
class RequestLine:
    name: str
    status: str
    units: int = 0

    def line(self) -> str:
        return f"{self.name} {self.status} {self.units}"


def watch(*looks: list[RequestLine], limit_seconds: float = 100.0) -> tuple[Waited, list[str]]:
    """Wait through these looks, the last one for ever."""
    clock, reported, left = Clock(), [], list(looks)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    def look() -> list[RequestLine]:
        return left.pop(0) if len(left) > 1 else left[0]

    return wait(look, reported.append, limit_seconds=limit_seconds, clock=clock, sleep=sleep), reported


def test_it_ends_when_every_request_is_completed():
    running, done = (
        [RequestLine("a", "completed"), RequestLine("b", "active")],
        [RequestLine("a", "completed"), RequestLine("b", "completed")],
    )
    assert judge(running) is None
    assert watch(running, done)[0] == Waited(End.COMPLETED, ())


def test_each_change_is_told_once():
    looks = [
        [RequestLine("a", "queued")],
        [RequestLine("a", "active")],
        [RequestLine("a", "active")],
        [RequestLine("a", "active", 1)],
    ]
    assert watch(*looks, [RequestLine("a", "completed", 1)])[1] == ["a queued 0", "a active 0", "a active 1", "a completed 1"]


@pytest.mark.parametrize("status", ["held", "failed", "aborted", "cleaned"])
def test_a_request_that_cannot_go_on_ends_it_at_once(status):
    end, reported = watch([RequestLine("a", "active"), RequestLine("b", status)])
    assert end == Waited(End.STOPPED, ("b",))
    assert len(reported) == 2


@pytest.mark.parametrize("status", ["partial", "stopping", "resubmitting", "queued", "planning"])
def test_whatever_goes_on_by_itself_is_waited_for(status):
    assert judge([RequestLine("a", status)]) is None


def test_the_time_limit_names_those_that_are_not_done():
    end, _ = watch([RequestLine("a", "completed"), RequestLine("b", "active")], limit_seconds=5)
    assert end == Waited(End.TIMEOUT, ("b",))


def test_nothing_to_wait_for_is_no_success():
    assert watch([])[0] == Waited(End.NOTHING, ())


def test_the_limit_is_ten_minutes_unless_the_environment_says_otherwise():
    assert limit_seconds("") == 600.0
    assert limit_seconds("12.5") == 12.5
    for wrong in ("0", "-1", "soon"):
        with pytest.raises(SystemExit, match="WMS2_DEMO_TIMEOUT_SECONDS"):
            limit_seconds(wrong)


def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    reported: list[str] = []
    active, held = [RequestLine("a", "active")], [RequestLine("a", "held")]
    looks: list[list[RequestLine] | None] = [active, None, None, active, held]

    def look() -> list[RequestLine]:
        found = looks.pop(0)
        if found is None:
            raise ConnectionError("the server closed the connection unexpectedly")
        return found

    progress = Progress(look, reported.append, ConnectionError)
    for _ in range(5):
        progress.step()
    assert reported == ["a active 0", "the database does not answer", "the database answers again", "a held 0"]
