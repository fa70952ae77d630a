"""The replay of recorded arrivals: what it reads, that limits are kept, and that it tells where they are not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bench.arrivals import SEED, passed, policy_of, read, report, sample, simulate, write


def test_limits_are_kept_and_low_priorities_go_on_where_plain_priority_lets_them_wait() -> None:
    policy = policy_of(20, 200.0)
    arrivals = sample(SEED)[:400]
    run = simulate(arrivals, policy)
    assert run.left == []
    assert list(passed(arrivals, run, policy)) == []
    plain = simulate(arrivals, replace(policy, aging_per_hour=0.0, caps={}))
    assert [group for group, _ in passed(arrivals, plain, policy)] != []
    assert any(line.startswith("low") for line in report(arrivals, run, policy))


def test_a_sample_comes_back_as_it_was_written_and_json_lines_are_read_too(tmp_path: Path) -> None:
    arrivals = sample(SEED)[:50]
    write(tmp_path / "a.csv", arrivals)
    again = read(tmp_path / "a.csv")
    assert [(each.waiting.queued_at, each.waiting.priority, each.lasts) for each in again] == [
        (each.waiting.queued_at, each.waiting.priority, each.lasts) for each in arrivals
    ]
    (tmp_path / "a.jsonl").write_text(
        '{"time": 0, "priority": 5, "campaign": "a", "requester": "r", "jobs": 10, "urgent": true}\n'
    )
    one = read(tmp_path / "a.jsonl")[0]
    assert (one.waiting.urgent, one.lasts) == (True, timedelta(seconds=7400))


def test_a_line_that_lacks_something_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,priority,campaign,requester\n0,1,a,b\n")
    with pytest.raises(ValueError, match="record 1: KeyError 'jobs'"):
        read(tmp_path / "a.csv")
