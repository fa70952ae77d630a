"""Limits: what operators change while WMS2 runs (page *Limits*, ``/api/v1/admission/config``): their defaults and bounds.

A class of each group as it is shown. ``WMS2_LIMITS`` gives an installation other defaults.
Sources: spec 4.2, 5.2; error-handling 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field


class _Group(BaseModel):
    title: ClassVar[str]
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class _Admission(_Group):
    title = "Admission"
    max_active_dags: int = Field(300, ge=1, le=100_000)
    """DAGs that may be live at the same time, in all"""
    idle_job_budget: int = Field(1_000_000, ge=1, le=100_000_000)
    """Jobs that may wait in the pool, over all DAGs; each DAG has a share"""
    admission_high_watermark: float = Field(1.0, gt=0, le=1)
    """Nothing starts once this part of the idle-job budget waits, down to the low watermark"""
    admission_low_watermark: float = Field(0.9, gt=0, le=1)
    """Requests start again when less than this part of the idle-job budget waits"""
    admission_aging_per_hour: float = Field(200.0, ge=0, le=1_000_000)
    """Points by which a queued request's priority rises for each hour that it waits"""
    timeout_queued_seconds: int = Field(7 * 86400, ge=60, le=10 * 365 * 86400)
    """A request that is QUEUED for longer raises an alert, and goes on waiting"""
    timeout_active_seconds: int = Field(30 * 86400, ge=60, le=10 * 365 * 86400)
    """A request that is ACTIVE for longer, since its DAG's first job began, raises an alert, and goes on"""


class _Planning(_Group):
    title = "Planning"
    jobs_per_work_unit: int = Field(8, ge=1, le=10_000)
    """Processing jobs that are merged together in the first round"""
    work_units_per_round: int = Field(100, ge=1, le=5_000)
    """Work units of a round of an adaptive request, after its first"""
    dag_max_merge_groups: int = Field(100, ge=1, le=1000)
    """Work units of one DAG that run at the same time at most"""
    block_target_bytes: int = Field(10**12, ge=10**6, le=10**16)
    """A processing block takes work units until the next one would pass this size"""
    block_max_files: int = Field(500, ge=1, le=100_000)
    """A processing block with so many files takes no more and is registered in DBS. Of this and the document's
    BlockCloseMaxFiles the smaller counts; BlockCloseMaxSize counts so beside block_target_bytes"""
    sizing_min_jobs: int = Field(8, ge=1, le=10_000)
    """A step that fewer jobs have measured keeps the request's hints"""
    overcommit_max: float = Field(1.0, ge=1, le=2)
    """Threads of a step's processes together, as a multiple of the job's cores, where some of these are idle and memory allows;
    1: no more than cores; from the next round or rescue of a request on"""
    generation_excess_factor: float = Field(2.0, ge=1.0, le=1000)
    """Events planned in all, lost ones and extensions included, at most so many times the number to generate that follows
    from the document"""


class _Errors(_Group):
    title = "Errors"
    error_hold_threshold: float = Field(0.20, gt=0, le=1)
    """Share of a round's work units, above 0 and at most 1, that hold the request when they fail"""
    error_max_rescue_attempts: int = Field(3, ge=0, le=100)
    """Rescues after failures that a round gets, counted from the last release"""
    error_same_units: int = Field(5, ge=0, le=5_000)
    """So many work units that fail with one error, while nothing else ends, abort their DAG; 0: never; of DAGs planned from now
    on"""
    max_excluded_fraction: float = Field(0.0, ge=0, le=1)
    """The share of its wanted input files that a request may complete without, when they could not be read or not be split;
    above it the request is held (excluded). A request may have its own"""
    unreadable_apart_seconds: int = Field(4 * 3600, ge=1, le=365 * 86400)
    """An input file that could not be read at the only site with it is tried again after this, and left out if it cannot be
    read then either; where two sites agree, at once"""
    unit_unbegun_seconds: int = Field(6 * 3600, ge=0, le=365 * 86400)
    """A work unit of which no job has begun at its site so long after it landed, while others of its DAG began elsewhere,
    lands at another site, once in each submission (alert site_starts_nothing); 0: never"""


class _SiteBans(_Group):
    title = "Site bans"
    site_ban_duration_days: float = Field(7.0, gt=0, le=3650)
    """How long a site is banned, when no duration is given"""
    site_ban_min_failures: int = Field(3, ge=1, le=10**6)
    """Failures for a site's sake that ban it for a request"""
    site_ban_failure_ratio: float = Field(0.50, ge=0, lt=1)
    """Share of the attempts there that they exceed"""
    site_ban_promotion_threshold: int = Field(3, ge=1, le=10_000)
    """So many requests that ban a site ban it for all"""


class _Retries(_Group):
    title = "Retries"
    retry_processing: int = Field(3, ge=0, le=100)
    """Retries of a processing node; of DAGs planned from now on"""
    retry_merge: int = Field(2, ge=0, le=100)
    """Retries of a merge node; of DAGs planned from now on"""
    cooloff_base_seconds: int = Field(60, ge=1, le=86_400)
    """Pause before the first retry of a node, doubled with each; of DAGs planned from now on"""
    retry_after_failure_seconds: int = Field(60, ge=1, le=86_400)
    """First pause of a request whose planning or submission failed; doubles"""
    retry_after_failure_max_seconds: int = Field(3600, ge=1, le=7 * 86_400)
    """Longest such pause"""
    effect_max_pause_seconds: int = Field(7 * 86400, ge=1, le=7 * 86400)
    """No pause between two tries of an effect is longer, whatever the schedule says"""
    effect_max_retry_seconds: int = Field(3 * 86400, ge=1, le=365 * 86_400)
    """Since its first failure, until an effect waits for an operator"""
    removal_tries: int = Field(3, ge=1, le=1000)
    """After so many tries a request completes without what cannot be removed"""
    harvest_max_attempts: int = Field(8, ge=1, le=1000)
    """Failed attempts of one harvesting, after which it waits for an operator"""


class _Memory(_Group):
    title = "Memory"
    default_memory_per_core_mb: int = Field(2000, ge=100, le=10**6)
    """Memory per core that jobs are given at least, in MB; of requests read from now on"""
    max_memory_per_core_mb: int = Field(3000, ge=100, le=10**6)
    """Memory per core that jobs may ask for at most, in MB; of requests read from now on"""
    memory_margin: float = Field(0.20, ge=0, le=2)
    """Added to the memory that was measured, as a share of it"""


class _Rates(_Group):
    title = "Rates"
    rate_limit_window_seconds: float = Field(10.0, ge=1, le=60)
    """Calls of one identity (a user; without one, an address) are counted in windows of so long, in the broker, for all web
    processes. Beyond the numbers below it is answered 429 with Retry-After"""
    rate_limit_submit: int = Field(50, ge=0)
    """Imports of one user within the window; 0, as for the others: no limit"""
    rate_limit_read: int = Field(100, ge=0)
    """Reads, pages included"""
    rate_limit_act: int = Field(20, ge=0)
    """Operations: stop, abort, hold, release and all others"""
    rate_limit_streams: int = Field(10, ge=0)
    """Streams of events that are begun"""


class Limits(_Rates, _Memory, _Retries, _SiteBans, _Errors, _Planning, _Admission):
    """All limits."""


#: Names of limits by group, as they are shown.
GROUPS: Mapping[str, tuple[str, ...]] = {
    group.title: tuple(group.model_fields) for group in (_Admission, _Planning, _Errors, _SiteBans, _Retries, _Memory, _Rates)
}
