"""Settings of load, the life cycle and admission."""

from __future__ import annotations

from pydantic import Field

from wms2.conf.base import Base


class Lifecycle(Base):
    """How much is done at once, and how often."""

    # --- Rates and load
    rate_limit_window_seconds: float = Field(10.0, ge=1, le=3600)
    """Calls of one identity (a user; without one, an address) are counted in windows of so long, in the broker, for all web
    processes. Beyond the numbers below it is answered 429 with `Retry-After`."""
    rate_limit_submit: int = Field(50, ge=0)
    """Imports of one user within the window; 0, as for the others: no limit"""
    rate_limit_read: int = Field(100, ge=0)
    """Reads, pages included"""
    rate_limit_act: int = Field(20, ge=0)
    """Operations: stop, abort, hold, release and all others"""
    rate_limit_streams: int = Field(10, ge=0)
    """Streams of events that are begun"""
    web_threads: int = Field(4, ge=1)
    """Threads of each web process. When most of them are busy for some seconds, calls are refused with 503: listings of
    nodes and logs first, then reads, then what starts work; never what stops work, results and health."""

    # --- Life cycle
    cycle_seconds: float = Field(60.0, gt=0)
    """Pause between two cycles: schedds are asked, and steps that are repeated are repeated."""
    poll_seconds: float = Field(2.0, gt=0, le=10)
    """Pause between two polls: requests are admitted, and those that are due are evaluated."""
    sweep_seconds: float = Field(3600.0, gt=0)
    """A request that was not evaluated for so long is evaluated all the same; nothing should be found."""
    lease_seconds: float = Field(30.0, gt=0)
    """Life of the leader's and of an evaluation's lease; a holder that is silent for longer is replaced. The leader's is at least
    `service_timeout_seconds` and ten seconds: it may have to wait for a silent schedd."""
    worker_heartbeat_seconds: float = Field(10.0, gt=0)
    """How often a worker reports that it is alive and reads what it is to do; after three times as long in silence it counts
    as dead."""
    timeout_queued_seconds: int = Field(7 * 86400, ge=60, le=10 * 365 * 86400)
    """A request that is QUEUED for longer raises an alert, and goes on waiting"""
    timeout_active_seconds: int = Field(30 * 86400, ge=60, le=10 * 365 * 86400)
    """A request that is ACTIVE for longer, since its DAG's first job began, raises an alert, and goes on"""
    retry_after_failure_seconds: int = Field(60, ge=1, le=86_400)
    """First pause of a request whose planning or submission failed; doubles"""
    retry_after_failure_max_seconds: int = Field(3600, ge=1, le=7 * 86_400)
    """Longest such pause"""
    submit_unknown_grace_seconds: float = Field(120.0, ge=0)
    """After a submission without an answer, "not in queue and history" counts only when this and `submit_timeout_seconds`
    have passed."""
    schedd_suspicion_seconds: int = 900
    """A schedd that is silent for longer raises an alert at the requests that run there, and an operator may confirm that
    it is lost. A DAG that its schedd does not know for longer is suspected lost."""
    trouble_load_per_cpu: float = Field(4.0, ge=0)
    """Load average per CPU of the leader's host from which on limits by which others are judged (schedds, requests) are
    stretched, up to three times. 0: the load is ignored."""

    # --- Admission
    max_active_dags: int = Field(300, ge=1, le=100_000)
    """DAGs that may be live at the same time, in all"""
    max_dagman_slots_per_schedd: int = Field(3100, ge=2)
    """DAGMan processes, outer and inner ones together, that a schedd may run; taken over when the schedd is first added,
    then kept in its row. Not more than the schedd's START_SCHEDULER_UNIVERSE allows; how many schedds that makes: the
    runbook, Pools and schedds."""
    canary_seconds: float = Field(3600.0, ge=1)
    """A schedd that is added runs a small DAG before it may be enabled; one that has not ended by then failed."""
    idle_job_budget: int = Field(1_000_000, ge=1, le=100_000_000)
    """Jobs that may wait in the pool, over all DAGs; each DAG has a share"""
    admission_high_watermark: float = Field(1.0, gt=0, le=1)
    """Nothing starts once this part of the idle-job budget waits, down to the low watermark"""
    admission_low_watermark: float = Field(0.9, gt=0, le=1)
    """Requests start again when less than this part of the idle-job budget waits"""
    admission_aging_per_hour: float = Field(200.0, ge=0, le=1_000_000)
    """Points by which a queued request's priority rises for each hour that it waits"""
