"""Reads what DAGMan leaves behind: status file, job-state log, metrics, rescue files.

Owns the formats of HTCondor 23.9 to 25, the numbers of DAGMan's states, and how an end is judged by them; nothing of what follows
from that: every function takes text or a path and returns frozen values. A file that is being written just now is *torn*, which
is None and not an error: keep the old numbers. docs/design/htcondor.md, DAGMan's files; spec 4.6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import classad2

from dags_app.payload.contract import layout
from wms2.adapters.types import DagStatus


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


class DagOutcome(StrEnum):
    """How a DAGMan that has left the queue ended."""

    COMPLETED = "completed"  # every node done
    NODES_FAILED = "nodes_failed"  # ran to the end, some nodes failed or are futile
    ABORTED = "aborted"  # a node asked to abort (code 43)
    DRAINED = "drained"  # halted, and left by itself with nodes not run
    REMOVED = "removed"  # condor_rm, ours or another person's
    BROKEN = "broken"  # DAGMan could not run the DAG at all, or died


def ended(exit_code: int | None, status: int | None, *, failed: bool, started: bool) -> DagOutcome:
    """How a DAGMan ended. 23.9 ends a drained DAG with status OK, so exit 1 without a failed node shows it there."""
    if status == DagStatus.REMOVED:
        return DagOutcome.REMOVED
    if status == DagStatus.ABORT:
        return DagOutcome.ABORTED
    if exit_code == 0:
        return DagOutcome.COMPLETED
    if status == DagStatus.HALTED or (status == DagStatus.OK and exit_code == 1 and started and not failed):
        return DagOutcome.DRAINED
    if status == DagStatus.NODE_FAILED or failed:
        return DagOutcome.NODES_FAILED
    return DagOutcome.BROKEN


class DagmanCounts(NamedTuple):
    """Nodes by state, and jobs of those that are submitted."""

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


class NodeStatus(NamedTuple):
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


class DagStatusFile(NamedTuple):
    """A whole NODE_STATUS_FILE. ``final``: DAGMan announced no further update (an aborted DAG's last file announces one)."""

    written_at: int  # seconds since the epoch
    counts: DagmanCounts
    nodes: tuple[NodeStatus, ...]
    final: bool

    def done_nodes(self) -> tuple[str, ...]:
        """Nodes that are done."""
        return tuple(node.name for node in self.nodes if node.state is NodeState.DONE)

    def failed_nodes(self) -> tuple[str, ...]:
        """Nodes in ERROR."""
        return tuple(node.name for node in self.nodes if node.state is NodeState.ERROR)

    @property
    def all_done(self) -> bool:
        """Whether every node is."""
        return len(self.done_nodes()) == len(self.nodes)


class DagMetrics(NamedTuple):
    """A ``.metrics`` file; nodes and sub-DAGs together. ``jobs_succeeded`` is not taken: it counts jobs that merely ended."""

    cluster: str
    exit_code: int
    status: DagStatus
    nodes_total: int
    nodes_done: int
    nodes_failed: int
    started_at: float
    ended_at: float

    @property
    def outcome(self) -> DagOutcome:
        """How it ended: the second source, when history does not answer or is already rotated."""
        return ended(self.exit_code, self.status, failed=self.nodes_failed > 0, started=self.nodes_total > 0)


class RescueFile(NamedTuple):
    """A rescue DAG: what a resubmission will not run again."""

    total: int
    done: frozenset[str]
    failed: frozenset[str]


#: Attributes of the status file, as ``DagmanCounts`` has them.
_COUNTS = (
    "NodesTotal", "NodesDone", "NodesPre", "NodesQueued", "NodesPost", "NodesReady", "NodesUnready", "NodesFailed", "NodesFutile",
    "JobProcsIdle", "JobProcsHeld",
)  # fmt: skip


def parse_status(text: str) -> DagStatusFile | None:
    """A status file; None when it is torn.

    Raises:
        DagmanFileError: it is whole, and an attribute is missing.
    """
    if 'Type = "StatusEnd"' not in text or not text.rstrip().endswith("]"):
        return None
    try:
        ads = list(classad2.parseAds(text))
    except (ValueError, classad2.ClassAdException) as error:
        raise DagmanFileError(f"the status file has an ad that cannot be read: {error}") from error
    dag, end = _only(ads, "DagStatus"), _only(ads, "StatusEnd")
    counts = DagmanCounts(*(_integer(dag, name) for name in _COUNTS))
    nodes = tuple(_node(ad) for ad in ads if ad.get("Type") == "NodeStatus")
    return DagStatusFile(_integer(dag, "Timestamp"), counts, nodes, final=_integer(end, "NextUpdate") == 0)


def read_status(path: Path) -> DagStatusFile | None:
    """``parse_status`` of a file; None also when there is none yet."""
    try:
        return parse_status(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _only(ads: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    for ad in ads:
        if ad.get("Type") == kind:
            return ad
    raise DagmanFileError(f"the status file has no {kind} ad")


def _integer(ad: Mapping[str, Any], name: str) -> int:
    value = ad.get(name)
    if not isinstance(value, int) or isinstance(value, classad2.Value):  # absent and undefined are such values
        raise DagmanFileError(f"{name} is missing or not a number: {value!r}")
    return int(value)


_STATES = frozenset(NodeState)


def _node(ad: Mapping[str, Any]) -> NodeStatus:
    name, state = ad.get("Node"), _integer(ad, "NodeStatus")
    if not isinstance(name, str) or not name or state not in _STATES:
        raise DagmanFileError(f"the status file has a node without a name or a state: {ad.get('Node')!r}, {state}")
    return NodeStatus(
        name=name,
        state=NodeState(state),
        details=str(ad.get("StatusDetails", "")),
        retries=_integer(ad, "RetryCount"),
        jobs_queued=_integer(ad, "JobProcsQueued"),
        jobs_held=_integer(ad, "JobProcsHeld"),
    )


def parse_metrics(text: str) -> DagMetrics | None:
    """A metrics file of version 1 (23.9: "jobs") or 2 ("nodes"); None when it is torn.

    Raises:
        DagmanFileError: it is whole JSON, and a key is missing.
    """
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict):
        raise DagmanFileError("the metrics file is no JSON object")
    word = "nodes" if data.get("metrics_version", 1) >= 2 else "jobs"
    try:
        return DagMetrics(
            cluster=data["dagman_id"],
            exit_code=data["exitcode"],
            status=DagStatus(data["DagStatus"]),
            nodes_total=data[f"total_{word}"],
            nodes_done=data[f"{word}_succeeded"] + data[f"dag_{word}_succeeded"],
            nodes_failed=data[f"{word}_failed"] + data[f"dag_{word}_failed"],
            started_at=data["start_time"],
            ended_at=data["end_time"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DagmanFileError(f"the metrics file has no usable {error}") from error


def read_metrics(path: Path) -> DagMetrics | None:
    """``parse_metrics`` of a file; None also when DAGMan has not ended yet."""
    try:
        return parse_metrics(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


_JOBSTATE = re.compile(r"^\d+ (\S+) (JOB_SUCCESS|JOB_FAILURE|\*\*\* DAGMAN_STARTED) (\S+) .*\n", re.MULTILINE)


def done_by_jobstate(text: str, cluster: str) -> frozenset[str]:
    """Nodes without a POST script that this DAGMan job has seen succeed, by a job-state log; what earlier ones saw is left out.

    The log is added to over submissions. A DAGMan that recovers writes that it has started once more, and repeats nothing.
    """
    mine, done = False, set[str]()
    for name, event, value in _JOBSTATE.findall(text):
        if name == "INTERNAL":
            mine = value.partition(".")[0] == cluster
            done = done if mine else set()
        elif event == "JOB_SUCCESS" and mine:
            done.add(name)
        else:
            done.discard(name)
    return frozenset(done)


class NodeSpan(NamedTuple):
    """One try of a node, by the job-state log; seconds since the epoch.

    ``well``: how it ended; None: it runs, or its DAGMan left before it ended.
    """

    name: str
    cluster: str
    begun_at: int
    ended_at: int | None
    well: bool | None


_SPANS = re.compile(
    r"^(\d+) (\S+) (SUBMIT|JOB_SUCCESS|JOB_FAILURE|\*\*\* DAGMAN_STARTED|\*\*\* DAGMAN_FINISHED) (\S+) .*\n", re.MULTILINE
)


def spans_by_jobstate(text: str) -> list[NodeSpan]:
    """All tries of all nodes, ended ones first. A try that its DAGMan did not see end, ends with that
    DAGMan; one that recovers goes on with what it had begun."""
    cluster, ended, begun = "", list[NodeSpan](), dict[str, int]()
    for at, name, event, value in _SPANS.findall(text):
        if name == "INTERNAL":
            found = value.partition(".")[0]
            if event.endswith("FINISHED") or found != cluster:
                ended += [NodeSpan(node, cluster, start, int(at), None) for node, start in begun.items()]
                begun = {}
            cluster = cluster if event.endswith("FINISHED") else found
        elif event == "SUBMIT":
            begun.setdefault(name, int(at))
        elif (start := begun.pop(name, None)) is not None:
            ended.append(NodeSpan(name, cluster, start, int(at), event == "JOB_SUCCESS"))
    return ended + [NodeSpan(node, cluster, start, None, None) for node, start in begun.items()]


_TOTAL = re.compile(r"^# Total number of Nodes: (\d+)$", re.MULTILINE)
_FAILED = re.compile(r"^# Nodes that failed: \d+\n#   (.*)<ENDLIST>", re.MULTILINE)
_DONE = re.compile(r"^DONE (\S+)", re.MULTILINE)


def read_rescue(path: Path) -> RescueFile:
    """A rescue file.

    Raises:
        DagmanFileError: it is another file, or not whole.
    """
    text = path.read_text(encoding="utf-8")
    total, failed = _TOTAL.search(text), _FAILED.search(text)
    if total is None or failed is None:
        raise DagmanFileError(f"{path} is not a whole rescue file")
    names = frozenset(name for name in failed[1].split(",") if name)
    return RescueFile(int(total[1]), frozenset(_DONE.findall(text)), names)


def newest_rescue(dag_file: Path) -> Path | None:
    """The rescue file that a resubmission of ``dag_file`` would start from, or None."""
    return max(dag_file.parent.glob(layout.rescue_glob(dag_file.name)), default=None)
