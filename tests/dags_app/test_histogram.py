"""Histograms: small, added up bin by bin, and right within their bins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dags_app.histogram import added, counted, quantile

VALUES = st.lists(st.floats(0, 1e12, allow_nan=False), min_size=1, max_size=200)


@given(VALUES, st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_is_that_of_the_values_within_a_bin(values: list[float], share: float) -> None:
    exact = next(value for rank, value in enumerate(sorted(values), 1) if rank >= len(values) * share)
    found = quantile(counted(values), share)
    assert found is not None
    if exact > 1e-12:
        assert abs(found / exact - 1) < 0.0101
    elif exact == 0:
        assert found == 0


@given(VALUES, VALUES)
def test_two_added_up_are_that_of_all_values(first: list[float], second: list[float]) -> None:
    assert added(counted(first), counted(second)) == counted([*first, *second])


def test_it_stays_small_and_nothing_has_no_quantile() -> None:
    assert len(counted(range(1, 100_000))) < 600
    assert quantile({}, 0.5) is None
