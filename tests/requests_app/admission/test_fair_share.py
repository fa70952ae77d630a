"""A DAG's share of the jobs that may wait: what holds for whatever numbers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dags_app.planning.throttles import Throttles
from requests_app.admission.fair_share import Running, Share, share_of

numbers = st.integers(0, 2_000_000)
some = st.integers(1, 5_000)
limits = st.builds(Throttles, st.integers(1, 1000), some, st.none() | some, st.none() | some)
shares = st.builds(Share, numbers, numbers, some)


@given(shares, limits, st.lists(some, min_size=1, max_size=20), st.data())
def test_what_all_may_have_waiting_never_passes_the_budget_but_for_one_unit_each(
    share: Share, throttles: Throttles, jobs: list[int], data: st.DataObject
) -> None:
    share = replace(share, sharers=data.draw(st.integers(len(jobs), 10_000)))
    units = [share.units(throttles, each) for each in jobs]
    beyond_one = sum(number * each for number, each in zip(units, jobs, strict=True) if number > 1)
    assert beyond_one <= max(share.budget - share.taken, 0)
    assert all(number >= 1 for number in units)


@given(shares, limits, some, some)
def test_more_budget_and_less_that_waits_never_mean_fewer_units_and_more_sharers_or_larger_units_never_more(
    share: Share, throttles: Throttles, jobs: int, more: int
) -> None:
    units = share.units(throttles, jobs)
    assert replace(share, budget=share.budget + more).units(throttles, jobs) >= units
    assert replace(share, taken=share.taken + more).units(throttles, jobs) <= units
    assert replace(share, sharers=share.sharers + more).units(throttles, jobs) <= units
    assert share.units(throttles, jobs + more) <= units
    assert share.units(throttles, jobs, more) == min(units, more)


@given(limits, numbers, some)
def test_no_category_has_more_than_its_limit_at_once(throttles: Throttles, share: int, jobs: int) -> None:
    units = throttles.units_at_once(share, jobs)
    assert 1 <= units <= throttles.merge_groups
    assert all(limit is None or units <= limit for limit in (throttles.merge, throttles.cleanup))
    assert units * throttles.processing_in_unit(units) <= throttles.processing
    if jobs <= throttles.processing:
        assert throttles.processing_in_unit(units) >= jobs, "the jobs of a unit that has begun need not wait for each other"


@given(st.lists(st.builds(Running, st.none() | some, st.just(0), some, some)))
def test_before_it_is_counted_a_dag_is_taken_for_all_that_it_may_run(running: list[Running]) -> None:
    share = share_of(10**9, running, sharers=1)
    assert share.taken == sum(each.units_at_once * each.jobs_per_unit if each.idle is None else each.idle for each in running)


def test_a_landing_job_that_waits_stands_for_the_jobs_of_its_unit() -> None:
    assert Running(idle=5, landing=2, units_at_once=9, jobs_per_unit=50).taken == 3 + 2 * 50
