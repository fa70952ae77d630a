"""The replay of recorded arrivals: what it reads, that limits are kept, and that it tells where they are not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

import pytest

from bench.arrivals import BEGIN, SEED, Arrival, idle_slots, passed, policy_of, read, report, sample, simulate, write
from requests_app.admission.ordering import Waiting


def test_limits_are_kept_and_low_priorities_go_on_where_plain_priority_lets_them_wait() -> None:
    policy = policy_of(20, 200.0)
    arrivals = sample(SEED)[:400]
    run = simulate(arrivals, policy)
    assert run.left == []
    assert list(passed(arrivals, run, policy)) == []
    plain = simulate(arrivals, replace(policy, aging_per_hour=0.0, caps={}))
    assert [group for group, _ in passed(arrivals, plain, policy)] != []
    assert any(line.startswith("low") for line in report(arrivals, run, policy))


def test_a_campaign_that_asks_alone_has_the_slots_that_nobody_else_wants_and_gives_them_back() -> None:
    """As recorded: nearly all of one campaign. With limits that do not bend it waits for hours, and 38 of 50 slots are idle."""
    at, policy = BEGIN, policy_of(50, 200.0)
    alone = [
        Arrival(Waiting(n, 85_000, at + n * timedelta(minutes=5), campaign="Alone", requester="prod"), timedelta(hours=3.5))
        for n in range(250)
    ]
    others = [
        Arrival(Waiting(1000 + n, 80_000, at + timedelta(hours=12), campaign=f"MC{n % 4}", requester=f"r{n}"), timedelta(hours=3))
        for n in range(20)
    ]
    arrivals = alone + others
    run = simulate(arrivals, policy)
    waits = [(run.began[each.waiting.key] - each.waiting.queued_at).total_seconds() / 3600 for each in alone]
    idle, hours = idle_slots(arrivals, run, policy.slots)
    assert median(waits) <= 0.1 and idle <= 2 * hours
    assert list(passed(arrivals, run, policy)) == []
    hard = replace(policy, caps={group: replace(cap, hard=True) for group, cap in policy.caps.items()})
    run = simulate(arrivals, hard)
    waits = [(run.began[each.waiting.key] - each.waiting.queued_at).total_seconds() / 3600 for each in alone]
    idle, hours = idle_slots(arrivals, run, policy.slots)
    assert median(waits) > 8 and idle > 30 * hours


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
