"""What looks at a schedd make of its health: three signals, several looks, and nothing that flaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sites_app.health import Rules, Signals, Verdict, judge
from sites_app.models import Health

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
RULES = Rules()
WELL = Signals(unheard_seconds=10, accepting=True, duty_cycle=0.1, dagmans=3, dagmans_most=500, ours=3, ours_most=400)
SILENT = Signals(silent="timed out")
BUSY = replace(WELL, duty_cycle=0.99)
UNHEARD = replace(WELL, unheard_seconds=3600)
KINDS = (WELL, SILENT, BUSY, UNHEARD)
FOUND = {WELL: Health.HEALTHY, SILENT: Health.UNREACHABLE, BUSY: Health.BUSY, UNHEARD: Health.DEGRADED}


def looks(signals: Iterable[Signals], before: Verdict | None = None, every: float = 60) -> list[Verdict]:
    """How it stands after each look."""
    found = [before or Verdict()]
    for number, each in enumerate(signals):
        found.append(judge(each, found[-1], AT + timedelta(seconds=every * number), RULES))
    return found[1:]


def classes(status_details: Iterable[Verdict]) -> list[Health]:
    return [each.health for each in status_details]


def test_one_lost_answer_is_a_suspicion_and_three_are_a_verdict() -> None:
    first, second, third = looks([SILENT] * 3)
    assert classes([first, second, third]) == [Health.HEALTHY, Health.HEALTHY, Health.UNREACHABLE]
    assert first.reported == "suspected unreachable, 1 of 3 looks: it does not answer: timed out"
    assert third.reported == "it does not answer: timed out"
    assert third.since == AT + timedelta(minutes=2)


def test_it_gets_better_after_several_good_looks_in_a_row_and_says_so_meanwhile() -> None:
    down = looks([SILENT] * 3)[-1]
    again = looks([WELL, SILENT, WELL, WELL, WELL], down)
    assert classes(again) == [Health.UNREACHABLE] * 4 + [Health.HEALTHY]
    assert again[2].reported == "it does not answer: timed out; seen healthy, 1 of 3 looks"
    assert again[-1].reported == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"duty_cycle": 0.981}, "duty cycle"),
        ({"dagmans": 500}, "500 DAGMans of everybody run, of 500"),
        ({"ours": 400}, "400 DAGMans of ours run, of 400 for one owner"),
        ({"accepting": False}, "by its own rule"),
    ],
)
def test_without_headroom_it_is_busy_at_once_and_that_is_no_error(changed: dict[str, object], why: str) -> None:
    (found,) = looks([replace(WELL, **changed)])  # type: ignore[arg-type]
    assert found.health == Health.BUSY and why in found.reason


def test_at_the_limit_of_its_duty_cycle_it_is_not_busy_yet() -> None:
    assert classes(looks([replace(WELL, duty_cycle=0.98)])) == [Health.HEALTHY]


def test_a_schedd_that_answers_and_that_the_collector_has_lost_is_degraded() -> None:
    found = looks([UNHEARD, UNHEARD])
    assert classes(found) == [Health.HEALTHY, Health.DEGRADED]
    assert "the collector has not heard of it for 3600 s" in found[-1].reason


def test_jobs_that_run_and_never_end_degrade_it_measured_by_what_the_longest_should_take() -> None:
    running = replace(WELL, jobs_running=20, jobs_ended=7, longest_seconds=6 * 3600)
    hours = [found.health for found in looks([running] * 15, every=3600)]
    assert hours.index(Health.DEGRADED) == 14, "twice six hours, and one look more"
    short = replace(running, longest_seconds=60)
    assert [f.health for f in looks([short] * 7, every=3600)].index(Health.DEGRADED) == 6, "never within four hours"


def test_each_job_that_ends_and_an_empty_queue_begin_the_time_anew() -> None:
    running = replace(WELL, jobs_running=20, longest_seconds=60.0)
    ending = [replace(running, jobs_ended=number // 4) for number in range(30)]
    idle = [replace(running, jobs_running=number % 3, jobs_ended=1) for number in range(30)]
    restarted = [replace(running, jobs_ended=9)] * 3 + [replace(running, jobs_ended=0)] * 3
    for signals in (ending, idle, restarted):
        assert set(classes(looks(signals, every=3600))) == {Health.HEALTHY}


def test_one_that_does_not_tell_how_many_jobs_ended_is_never_stalled() -> None:
    assert set(classes(looks([replace(WELL, jobs_running=5)] * 30, every=7200))) == {Health.HEALTHY}


def test_another_job_queue_is_evidence_that_counts_at_once() -> None:
    found = looks([replace(WELL, new_queue="its job queue is another one"), WELL, WELL, WELL])
    assert classes(found) == [Health.DEGRADED] * 3 + [Health.HEALTHY]
    assert found[1].reported.startswith("its job queue is another one; seen healthy")


@given(st.lists(st.sampled_from(KINDS), max_size=30), st.sampled_from(KINDS))
def test_whatever_was_before_looks_that_agree_end_in_what_they_say(before: list[Signals], last: Signals) -> None:
    assert looks([*before, *[last] * 3])[-1].health == FOUND[last]


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=40))
def test_no_class_is_given_without_a_look_that_says_so_nor_without_its_number_of_looks(signals: list[Signals]) -> None:
    before, order = Verdict(), list(Health)
    needed = {Health.HEALTHY: 3, Health.BUSY: 1, Health.DEGRADED: 2, Health.UNREACHABLE: 3}
    for number, after in enumerate(looks(signals)):
        if after.health != before.health:
            assert after.health == FOUND[signals[number]]
            worse = order.index(after.health) > order.index(before.health)
            agree = needed[after.health] if worse else 3
            said = [order.index(FOUND[each]) for each in signals[number + 1 - agree : number + 1]]
            assert len(said) == agree and {each > order.index(before.health) for each in said} == {worse}
        else:
            assert after.since == (before.since or after.since)
        assert bool(after.reason) == (after.health != Health.HEALTHY)
        before = after


@given(st.lists(st.sampled_from((SILENT, UNHEARD, WELL)), max_size=40))
def test_a_look_that_fails_now_and_then_changes_nothing(noise: list[Signals]) -> None:
    signals = [each for one in noise for each in (one, WELL)]
    assert set(classes(looks(signals))) <= {Health.HEALTHY}
