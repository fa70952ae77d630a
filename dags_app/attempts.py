"""What one attempt left in its unit's directory: its record, report, packed logs, ads and events. Reads files, concludes nothing.

Every name that comes from outside is checked against the form that WMS2 itself gives (ValueError: it has not), and a file is read
only when it lies inside the DAG's directory: no address leads anywhere else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dags_app.live import checked, checked_unit
from dags_app.models import DAG
from dags_app.packs import files_of, is_there, size_of
from dags_app.payload.contract import packed
from dags_app.payload.contract.files import tail_text
from dags_app.payload.contract.layout import CLUSTER_LOG, STORED_LOGS_FILE, attempts_name, logs_name, report_name
from dags_app.payload.contract.packed import LogFile, StoredLogs
from dags_app.payload.post import eventlog

_NODE_NAME = re.compile(r"(?:proc|merge|cleanup|landing|[a-z][a-z0-9]{0,15})(?:_[0-9]{1,9}){0,2}")
_JOB_ID = re.compile(r"-?[0-9]{1,12}\.-?[0-9]{1,6}")
#: The most of each file that one answer carries.
MOST_BYTES = 4 * 1024 * 1024
MOST_ATTEMPTS = 200
MOST_EVENTS = 500
_ENDINGS = ("exit_signal", "hold_reason", "removed_reason")


class AttemptFile(NamedTuple):
    """A file of an attempt, or why it is missing."""

    path: str
    content: Any
    problem: str


def node_attempts(dag: DAG, unit: str, node: str) -> list[dict[str, Any]]:
    """Recorded attempts of a node, oldest first, the newest ``MOST_ATTEMPTS``; none when nothing is recorded."""
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
    """The report of one job; an attempt number repeats after a rescue, so a later job may have replaced it."""
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
    """
    wanted = _checked_job(job_id)
    name = logs_name(_checked_node(node), attempt, wanted)
    with _files(dag, unit, name, CLUSTER_LOG) as (logs, event_log):
        members = {each.name: each.text for each in packed.read_logs(logs)} if logs else {}
        events = [event for event in eventlog.read_events(event_log) if event.job_id == wanted] if event_log else []
    content = {
        "job_ad": members.get(packed.JOB_AD, ""),
        "machine_ad": members.get(packed.MACHINE_AD, ""),
        "events": [{"number": e.number, "at": e.at.isoformat(), "title": e.title, "body": e.body} for e in events[-MOST_EVENTS:]],
    }
    problem = "" if content["job_ad"] else _why_no_logs(dag, unit, node, wanted)
    return AttemptFile(str(Path(dag.submit_dir) / unit / (name if logs else "")), content, problem)


class AttemptLogs(NamedTuple):
    """The packed logs of a job: the archive as it is, what is in it, or why there is nothing."""

    path: str
    archive: bytes
    files: tuple[LogFile, ...]
    problem: str


def attempt_logs(dag: DAG, unit: str, node: str, attempt: int, job_id: str) -> AttemptLogs:
    """The packed logs of one job."""
    name = logs_name(_checked_node(node), attempt, _checked_job(job_id))
    with _files(dag, unit, name) as (path,):
        archive = path.read_bytes() if path and path.stat().st_size <= packed.MOST_PACKED_BYTES else b""
        found = packed.read_logs(path) if path else ()
    problem = "" if found else "the archive is damaged, or larger than any that a job writes: nothing in it can be shown"
    if path is None:
        problem = _why_no_logs(dag, unit, node, job_id)
    return AttemptLogs(str(Path(dag.submit_dir) / unit / name), archive, found, problem)


def logs_size(dag: DAG, unit: str, node: str, attempt: int, job_id: str) -> int | None:
    """Bytes of the packed logs of one job; None when there are none."""
    return size_of(dag.submit_dir, f"{unit}/{logs_name(node, attempt, job_id)}")


def stored_logs(dag: DAG) -> list[StoredLogs]:
    """The packed logs that the DAG's directory keeps, the newest first; empty when it cannot be read from here."""
    with files_of(dag.submit_dir, STORED_LOGS_FILE) as directory:
        return packed.read_stored_logs(directory)[::-1]


def _why_no_logs(dag: DAG, unit: str, node: str, job_id: str) -> str:
    """In words, from what the POST script recorded of the job."""
    if job_id.startswith("-"):
        return "there was no job: it could not be submitted"
    if not is_there(dag.submit_dir):
        where = f"{dag.submit_dir} (of {dag.schedd_name or 'its schedd'})"
        return f"the DAG's directory {where} cannot be read from this host, or is gone"
    record = next((each for each in reversed(node_attempts(dag, unit, node)) if each.get("job_id") == job_id), None)
    if record is None:
        return "nothing is known of its end yet: no POST script has judged it"
    if record.get("logs"):
        return "its logs came back and were removed since: other attempts' are kept (see Retention in docs/configuration.md)"
    job = record.get("job")
    known = [f"{name}: {value}" for name, value in job.items() if name in _ENDINGS and value] if isinstance(job, dict) else []
    return "; ".join(["nothing came back of this job: it was killed, held or removed before it could pack its logs", *known])


@contextmanager
def _files(dag: DAG, unit: str, *names: str) -> Iterator[tuple[Path | None, ...]]:
    """The files, those that are there and really lie in the unit's directory; from the pack, if that is packed."""
    with files_of(dag.submit_dir, *(f"{checked_unit(unit)}/{name}" for name in names)) as directory:
        yield tuple(_inside(directory.resolve(), unit, name) for name in names)


def _inside(base: Path, unit: str, name: str) -> Path | None:
    try:
        path = (base / unit / name).resolve()
        return path if path.is_file() and path.parent == base / unit else None
    except OSError:
        return None  # no file system has such a name


def _checked_node(node: str) -> str:
    return checked(node, _NODE_NAME, "node's name")


def _checked_job(job_id: str) -> str:
    return checked(job_id, _JOB_ID, "job id (cluster.proc)")


def _read(text: str) -> Any:
    """JSON as a job wrote it, so that it can be passed on: numbers that JSON cannot express as text.

    Raises:
        ValueError: it is invalid, nested too deep, or has half a character.
    """
    try:
        value = json.loads(text, parse_constant=str, parse_float=lambda part: float(part) if math.isfinite(float(part)) else part)
    except RecursionError:
        raise ValueError("nested too deep") from None
    json.dumps(value, ensure_ascii=False).encode()
    return value
