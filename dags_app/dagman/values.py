"""What DAGMan says, as frozen values. Owns the numbers of its states; reads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path


class DagmanFileError(ValueError):
    """A complete file is not what DAGMan writes; says which file and what is missing."""


class NodeState(IntEnum):
    """``NodeStatus`` of the status file."""

    NOT_READY = 0
    READY = 1
    PRERUN = 2
    SUBMITTED = 3
    POSTRUN = 4
    DONE = 5
    ERROR = 6
    FUTILE = 7  # an ancestor failed


class DagmanStatus(IntEnum):
    """``DAG_Status`` of the job ad and ``DagStatus`` of the metrics."""

    OK = 0
    ERROR = 1  # also: the DAG file could not be read
    NODE_FAILED = 2
    ABORTED = 3  # ABORT-DAG-ON
    REMOVED = 4
    CYCLE = 5
    HALTED = 6  # set at the end of a drain by 25.x; 23.9 leaves 0


class DagOutcome(StrEnum):
    """How a DAGMan that has left the queue ended."""

    COMPLETED = "completed"  # every node done
    NODES_FAILED = "nodes_failed"  # ran to the end, some nodes failed or are futile
    ABORTED = "aborted"  # a node asked to abort (code 43)
    DRAINED = "drained"  # halted, and left by itself with nodes not run
    REMOVED = "removed"  # condor_rm, ours or somebody else's
    BROKEN = "broken"  # DAGMan could not run the DAG at all, or died


@dataclass(frozen=True, slots=True)
class DagmanCounts:
    """Nodes by state, and jobs of those that are submitted. ``jobs_running`` is None where the source does not tell."""

    total: int
    done: int
    prerun: int
    queued: int
    postrun: int
    ready: int
    unready: int
    failed: int
    futile: int
    jobs_idle: int
    jobs_held: int
    jobs_running: int | None = None

    @property
    def unfinished(self) -> int:
        """Nodes that are neither done nor given up."""
        return self.total - self.done - self.failed - self.futile


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node of a status file. ``details`` is DAGMan's sentence on how it ended; empty when there is nothing to say."""

    name: str
    state: NodeState
    details: str
    retries: int
    jobs_queued: int
    jobs_held: int

    @property
    def was_removed(self) -> bool:
        """In ERROR because its job was removed, with the DAG or by itself: no failure (docs/design/model.md, Failed units)."""
        return self.state is NodeState.ERROR and (self.details.startswith("Was STATUS_") or "ULOG_JOB_ABORTED" in self.details)


@dataclass(frozen=True, slots=True)
class DagStatusFile:
    """A whole NODE_STATUS_FILE. ``final``: DAGMan announced no further update (an aborted DAG's last file announces one)."""

    written_at: int  # seconds since the epoch
    counts: DagmanCounts
    nodes: tuple[NodeStatus, ...]
    final: bool

    def failed_nodes(self) -> tuple[str, ...]:
        """Nodes that failed; those that were only removed are not among them."""
        return tuple(node.name for node in self.nodes if node.state is NodeState.ERROR and not node.was_removed)

    def done_nodes(self) -> tuple[str, ...]:
        """Nodes that are done."""
        return tuple(node.name for node in self.nodes if node.state is NodeState.DONE)


@dataclass(frozen=True, slots=True)
class DagMetrics:
    """A ``.metrics`` file; nodes and sub-DAGs together. ``jobs_succeeded`` is not taken: it counts jobs that merely ended."""

    condor_version: str
    cluster: str
    exit_code: int
    status: DagmanStatus
    rescue_number: int
    nodes_total: int
    nodes_done: int
    nodes_failed: int
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class JobstateEvent:
    """One line of the job-state log. ``node`` is ``INTERNAL`` for DAGMan's own; ``detail`` a job id, an exit code or ``-``."""

    at: int
    node: str
    event: str
    detail: str


@dataclass(frozen=True, slots=True)
class JobstateChunk:
    """Events since an offset, and the offset to go on from. ``unreadable``: whole lines that are no events."""

    events: tuple[JobstateEvent, ...]
    offset: int
    unreadable: tuple[str, ...] = ()

    def succeeded(self) -> tuple[str, ...]:
        """Nodes that became done, in order; for nodes without a POST script, as work units are."""
        return tuple(event.node for event in self.events if event.event == "JOB_SUCCESS")


@dataclass(frozen=True, slots=True)
class RescueFile:
    """A rescue DAG: what a resubmission will not run again."""

    path: Path
    number: int
    total: int
    done: frozenset[str]
    failed: frozenset[str]


@dataclass(frozen=True, slots=True)
class DagmanJob:
    """A DAGMan job, live or from history. ``counts`` is None in its first second, before it has reported."""

    cluster: int
    job_status: int  # HTCondor's: 1 idle, 2 running, 3 removed, 4 completed, 5 held
    exit_code: int | None
    status: DagmanStatus | None
    counts: DagmanCounts | None
    in_recovery: bool
    updated_at: int | None
    node: str | None  # name in the outer DAG; None for an outer DAGMan
    parent_cluster: int | None
    instance: str | None
    request_name: str | None
    dag_id: str | None
    unit: str | None
    fence: int | None
    starts: int
    hold_reason: str | None
    remove_reason: str | None
    ended_at: int | None

    @property
    def has_left(self) -> bool:
        """Removed or completed: the ad is not of a job that still runs or waits."""
        return self.job_status in (3, 4)
