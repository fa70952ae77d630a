"""Reads DAGMan's files: node status, metrics, job-state log, rescue.

A file that is being written just now is *torn*, which is None and not an error: keep the old numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import classad2

from dags_app.dagman import attributes
from dags_app.dagman.attributes import integer
from dags_app.dagman.values import (
    DagmanCounts,
    DagmanFileError,
    DagmanStatus,
    DagMetrics,
    DagStatusFile,
    JobstateChunk,
    JobstateEvent,
    NodeState,
    NodeStatus,
    RescueFile,
)
from dags_app.payload.contract import layout


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
        raise DagmanFileError(f"the status file has an ad that is none: {error}") from error
    dag = _only(ads, "DagStatus")
    end = _only(ads, "StatusEnd")
    counts = DagmanCounts(
        total=integer(dag, "NodesTotal"),
        done=integer(dag, "NodesDone"),
        prerun=integer(dag, "NodesPre"),
        queued=integer(dag, "NodesQueued"),
        postrun=integer(dag, "NodesPost"),
        ready=integer(dag, "NodesReady"),
        unready=integer(dag, "NodesUnready"),
        failed=integer(dag, "NodesFailed"),
        futile=integer(dag, "NodesFutile"),
        jobs_idle=integer(dag, "JobProcsIdle"),
        jobs_held=integer(dag, "JobProcsHeld"),
    )
    nodes = tuple(_node(ad) for ad in ads if ad.get("Type") == "NodeStatus")
    return DagStatusFile(integer(dag, "Timestamp"), counts, nodes, final=integer(end, "NextUpdate") == 0)


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


_STATES = frozenset(NodeState)


def _node(ad: Mapping[str, Any]) -> NodeStatus:
    name, state = attributes.text(ad, "Node"), integer(ad, "NodeStatus")
    if name is None or state not in _STATES:
        raise DagmanFileError(f"the status file has a node without a name or a state: {ad.get('Node')!r}, {state}")
    return NodeStatus(
        name=name,
        state=NodeState(state),
        details=str(ad.get("StatusDetails", "")),
        retries=integer(ad, "RetryCount"),
        jobs_queued=integer(ad, "JobProcsQueued"),
        jobs_held=integer(ad, "JobProcsHeld"),
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
            condor_version=data["version"],
            cluster=data["dagman_id"],
            exit_code=data["exitcode"],
            status=DagmanStatus(data["DagStatus"]),
            rescue_number=data["rescue_dag_number"],
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


_EVENT = re.compile(r"(\d+) (\S+) (?:\*\*\* )?(\S+) (\S+)(?: .*)?")


def read_jobstate(path: Path, offset: int = 0) -> JobstateChunk:
    """Events appended since ``offset`` (bytes). A last line without its end is left for the next call.

    DAGMan appends over resubmissions; should the file have become shorter, it is read from its beginning.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = offset if offset <= size else 0
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return JobstateChunk((), 0)
    whole = data[: data.rfind(b"\n") + 1]
    events, unreadable = [], []
    for line in whole.decode("utf-8", errors="replace").splitlines():
        found = _EVENT.fullmatch(line)
        if found:
            events.append(JobstateEvent(int(found[1]), found[2], found[3], found[4]))
        else:
            unreadable.append(line)
    return JobstateChunk(tuple(events), start + len(whole), tuple(unreadable))


_RESCUE_NUMBER = re.compile(r"\.rescue(\d{3})$")
_TOTAL = re.compile(r"^# Total number of Nodes: (\d+)$", re.MULTILINE)
_FAILED = re.compile(r"^# Nodes that failed: \d+\n#   (.*)<ENDLIST>", re.MULTILINE)
_DONE = re.compile(r"^DONE (\S+)", re.MULTILINE)


def read_rescue(path: Path) -> RescueFile:
    """A rescue file.

    Raises:
        DagmanFileError: it is none, or it is not whole.
    """
    text, number = path.read_text(encoding="utf-8"), _RESCUE_NUMBER.search(path.name)
    total, failed = _TOTAL.search(text), _FAILED.search(text)
    if number is None or total is None or failed is None:
        raise DagmanFileError(f"{path} is not a whole rescue file")
    names = frozenset(name for name in failed[1].split(",") if name)
    return RescueFile(path, int(number[1]), int(total[1]), frozenset(_DONE.findall(text)), names)


def newest_rescue(dag_file: Path) -> Path | None:
    """The rescue file that a resubmission of ``dag_file`` would start from, or None."""
    return max(dag_file.parent.glob(layout.rescue_glob(dag_file.name)), default=None)


def last_rescue(dag_file: Path) -> RescueFile | None:
    """What ``newest_rescue`` says, or None."""
    path = newest_rescue(dag_file)
    return read_rescue(path) if path else None
