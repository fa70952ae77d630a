"""The rounding of EventsPerJob to whole lumis. Owns nothing else."""

from __future__ import annotations


def round_to_lumis(events_per_job: int, events_per_lumi: int) -> int:
    """``events_per_job`` as a multiple of ``events_per_lumi``: the nearest, half to even, at least one lumi.

    1250 with 300 gives 1200, 1180 with 300 also 1200 (more than asked), 100 with 300 gives 300.
    """
    lumis, rest = divmod(events_per_job, events_per_lumi)
    if 2 * rest > events_per_lumi or (2 * rest == events_per_lumi and lumis % 2 == 1):
        lumis += 1
    return max(lumis, 1) * events_per_lumi
