"""Rounding to whole numbers, half to even, without floating point. Owns nothing else."""

from __future__ import annotations


def round_half_even(dividend: int, divisor: int) -> int:
    """``dividend / divisor`` as the nearest whole number, halves to the even one. Both at least 0, the divisor above."""
    whole, rest = divmod(dividend, divisor)
    return whole + 1 if 2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1) else whole


def round_to_lumis(events_per_job: int, events_per_lumi: int) -> int:
    """``events_per_job`` as a multiple of ``events_per_lumi``: the nearest, half to even, at least one lumi; 0: as it is.

    1250 with 300 gives 1200, 1180 with 300 also 1200 (more than asked), 100 with 300 gives 300.
    """
    if not events_per_lumi:
        return events_per_job
    return max(round_half_even(events_per_job, events_per_lumi), 1) * events_per_lumi
