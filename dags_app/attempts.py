"""What one attempt left in its unit's directory: its record, report, ads and events. Reads files, writes and concludes nothing.

Every name that comes from outside is checked against the form that WMS2 itself gives, and a file is read only when it lies
inside the DAG's directory: no address leads anywhere else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dags_app.live import UNIT_NAME
from dags_app.models import DAG
from dags_app.packs import files_of
from dags_app.payload.contract import packed
from dags_app.payload.contract.files import tail_text
from dags_app.payload.contract.layout import CLUSTER_LOG, attempts_name, logs_name, report_name
from dags_app.payload.post import eventlog

NODE_NAME = re.compile(r"(?:proc|merge|cleanup|landing|[a-z][a-z0-9]{0,15})(?:_[0-9]{1,9}){0,2}")
JOB_ID = re.compile(r"-?[0-9]{1,12}\.-?[0-9]{1,6}")
#: The most of each file that one answer carries.
MOST_BYTES = 4 * 1024 * 1024
MOST_ATTEMPTS = 200
MOST_EVENTS = 500


@dataclass(frozen=True, slots=True)
class AttemptFile:
    """A file of an attempt, or why there is none."""

    path: str
    content: Any
    problem: str


def node_attempts(dag: DAG, unit: str, node: str) -> list[dict[str, Any]]:
    """Recorded attempts of a node, oldest first, the newest ``MOST_ATTEMPTS``; none when nothing is recorded.

    Raises:
        ValueError: ``unit`` or ``node`` is no name that WMS2 gives.
    """
    with _files(dag, unit, attempts_name(_checked_node(node))) as (path,):
        texts = tail_text(path, MOST_ATTEMPTS, max_bytes=MOST_BYTES).splitlines() if path else []
    found = []
    for text in texts:
        try:
            line = _read(text)
        except ValueError:
            continue  # cut off by a crash, or by the bound of what is read
        if isinstance(line, dict):
            found.append(line)
    return found


def attempt_report(dag: DAG, unit: str, node: str, attempt: int, job_id: str) -> AttemptFile:
    """The report of one job; an attempt number repeats after a rescue, so a later job may have replaced it.

    Raises:
        ValueError: a name is none that WMS2 gives.
    """
    name = report_name(_checked_node(node), attempt)
    shown = str(Path(dag.submit_dir) / unit / name)
    with _files(dag, unit, name) as (path,):
        if path is None:
            return AttemptFile(f"{unit}/{name}", None, "the job left no report, or the DAG's directory is gone")
        try:
            if path.stat().st_size > MOST_BYTES:
                return AttemptFile(shown, None, f"the report is larger than {MOST_BYTES} bytes")
            report = _read(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError) as error:
            return AttemptFile(shown, None, f"the report cannot be read: {error}")
    if not isinstance(report, dict) or report.get("job_id") != _checked_job(job_id):
        return AttemptFile(shown, None, f"a later job with the same attempt number has replaced the report of job {job_id}")
    return AttemptFile(shown, report, "")


def attempt_ads(dag: DAG, unit: str, node: str, attempt: int, job_id: str) -> AttemptFile:
    """``{job_ad, machine_ad, events}`` of one job: both ads as the job saw them, and its events in HTCondor's log.

    The ads are there when the job came so far as to pack its logs; the events always.

    Raises:
        ValueError: a name is none that WMS2 gives.
    """
    wanted = _checked_job(job_id)
    name = logs_name(_checked_node(node), attempt)
    with _files(dag, unit, name, CLUSTER_LOG) as (logs, event_log):
        members = packed.read_members(logs) if logs else {}
        events = [event for event in eventlog.read_events(event_log) if event.job_id == wanted] if event_log else []
    own = packed.job_of(members.get(packed.JOB_AD, "")) == wanted
    content = {
        "job_ad": members[packed.JOB_AD] if own else "",
        "machine_ad": members.get(packed.MACHINE_AD, "") if own else "",
        "events": [{"number": e.number, "at": e.at.isoformat(), "title": e.title, "body": e.body} for e in events[-MOST_EVENTS:]],
    }
    problem = "" if own else "the job's ads did not come back: it was killed, held or removed, or a later job replaced its logs"
    return AttemptFile(str(Path(dag.submit_dir) / unit / (name if logs else "")), content, problem)


@contextmanager
def _files(dag: DAG, unit: str, *names: str) -> Iterator[tuple[Path | None, ...]]:
    """The files, those that are there and really lie in the unit's directory; from the pack, if that is packed."""
    if not UNIT_NAME.fullmatch(unit):
        raise ValueError(f"{unit!r} is no work unit's name")
    with files_of(dag.submit_dir, *(f"{unit}/{name}" for name in names)) as directory:
        yield tuple(_inside(directory.resolve(), unit, name) for name in names)


def _inside(base: Path, unit: str, name: str) -> Path | None:
    try:
        path = (base / unit / name).resolve()
        return path if path.is_file() and path.parent == base / unit else None
    except OSError:
        return None  # no file system has such a name


def _checked_node(node: str) -> str:
    if not NODE_NAME.fullmatch(node):
        raise ValueError(f"{node!r} is no node's name")
    return node


def _checked_job(job_id: str) -> str:
    if not JOB_ID.fullmatch(job_id):
        raise ValueError(f"{job_id!r} is no job id (cluster.proc)")
    return job_id


def _read(text: str) -> Any:
    """JSON as a job wrote it, so that it can be told on: numbers that JSON has no word for as text.

    Raises:
        ValueError: it is none, nested too deep, or has half a character.
    """
    try:
        value = json.loads(text, parse_constant=str, parse_float=lambda number: _finite(float(number), number))
    except RecursionError:
        raise ValueError("nested too deep") from None
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(number: float, text: str) -> float | str:
    return number if math.isfinite(number) else text
