"""Settings of load, the life cycle and admission."""

from __future__ import annotations

from pydantic import Field

from wms2.conf.base import Base

#: Threads of each web process, beside one for each of ``feed_readers``. When most of them are busy for some seconds, calls are
#: refused with 503 (``wms2.web.shedding``).
WEB_THREADS = 4


class Lifecycle(Base):
    """How much is done at once, and how often."""

    # --- Life cycle
    cycle_seconds: float = Field(60.0, gt=0)
    """Pause between two cycles: schedds are asked, and steps that are repeated are repeated."""
    sweep_seconds: float = Field(3600.0, gt=0)
    """A request that was not evaluated for so long is evaluated all the same; nothing should be found."""
    lease_seconds: float = Field(30.0, gt=0)
    """Life of the leader's and of an evaluation's lease; a holder that is silent for longer is replaced. The leader's is at least
    `service_timeout_seconds` and ten seconds: it may have to wait for a silent schedd."""
    worker_heartbeat_seconds: float = Field(10.0, gt=0)
    """How often a worker reports that it is alive and reads what it is to do; after three times as long in silence it counts
    as dead."""
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
    max_dagman_slots_per_schedd: int = Field(3100, ge=2)
    """DAGMan processes, outer and inner ones together, that a schedd may run; taken over when the schedd is first added,
    then kept in its row. Not more than the schedd's START_SCHEDULER_UNIVERSE allows; how many schedds that makes: the
    runbook, Pools and schedds."""
    canary_seconds: float = Field(3600.0, ge=1)
    """A schedd that is added runs a small DAG before it may be enabled; one that has not ended by then failed."""
