"""Reading HTCondor's job event log (the text form of ``cluster.log`` and ``<dag>.nodes.log``). Owns that form.

The file may be read while HTCondor writes to it: an event without its closing ``...`` line is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

SUBMIT, EXECUTE, EVICTED, TERMINATED, IMAGE_SIZE, ABORTED, HELD = 0, 1, 4, 5, 6, 9, 12

_HEAD = re.compile(
    r"^(\d{3}) \((\d+)\.(\d+)\.\d+\) (\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z| ?[+-]\d\d:?\d\d)?\S* (.*)$"
)
_ATTRIBUTE = re.compile(r"^\s*(\w+)\s*=\s*\"?([^\"]*)\"?\s*$")
_USAGE = re.compile(r"Usr (\d+) (\d+):(\d+):(\d+), Sys (\d+) (\d+):(\d+):(\d+)\s+-\s+Run Remote Usage")
_MEMORY_TABLE = re.compile(r"^\s*Memory \(MB\)\s*:\s*(\d+)\s+\d+\s+\d+", re.MULTILINE)
_MEMORY_EVENT = re.compile(r"^\s*(\d+)\s+-\s+MemoryUsage of job \(MB\)", re.MULTILINE)
_HOLD_CODE = re.compile(r"^\s*Code (\d+) Subcode -?\d+", re.MULTILINE)
_SIGNAL = re.compile(r"Abnormal termination \(signal (\d+)\)")


class LogEvent(NamedTuple):
    """One event: its number, job, time (UTC), first line and the lines below."""

    number: int
    job_id: str
    at: datetime
    title: str
    body: str


class JobHistory(NamedTuple):
    """What the log records of one job's last run, None where it has nothing; and how often it was started and evicted in all."""

    site: str | None = None
    exit_signal: int | None = None
    hold_reason: str | None = None
    hold_code: int | None = None
    removed_reason: str | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    memory_mb: int | None = None
    starts: int = 0
    evictions: int = 0


def read_events(path: Path) -> Iterator[LogEvent]:
    """All whole events of a log, in order; none when there is no file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    lines: list[str] = []
    before: datetime | None = None
    for line in text.splitlines():
        if line != "...":
            lines.append(line)
            continue
        head = _HEAD.match(lines[0]) if lines else None
        time = _time(head.group(4), head.group(5), before) if head else None
        if head and time:
            number, cluster, proc, _, _, title = head.groups()
            before = time
            body = "\n".join(lines[1:])
            yield LogEvent(int(number), f"{int(cluster)}.{int(proc)}", time, title, body)
        lines = []


def _time(text: str, zone: str | None, before: datetime | None) -> datetime | None:
    """A time with its zone. Without one, as HTCondor writes by default, it is this host's, where the schedd runs, and in the
    hour that comes twice a year it is that after ``before``.
    """
    try:
        found = datetime.fromisoformat(text.replace("T", " "))
        if zone is not None:
            digits = zone.strip()
            minutes = 0 if digits == "Z" else int(digits[1:3]) * 60 + int(digits[-2:])
            east = timedelta(minutes=-minutes if digits[0] == "-" else minutes)
            return found.replace(tzinfo=timezone(east)).astimezone(timezone.utc)
        first, second = (found.replace(fold=fold).astimezone(timezone.utc) for fold in (0, 1))
    except (ValueError, OverflowError):  # a damaged line looks like an event's
        return None
    return second if before is not None and first < before else first


def attribute(event: LogEvent, name: str) -> str | None:
    """A ``name = value`` line of an event (``ulog_execute_attrs`` puts machine attributes into 001)."""
    for line in event.body.splitlines():
        found = _ATTRIBUTE.match(line)
        if found and found.group(1) == name and found.group(2) != "undefined":
            return found.group(2)
    return None


def execute_site(path: Path, job_id: str, name: str) -> str | None:
    """Machine attribute ``name`` of the last 001 event of ``job_id``'s cluster: retries and evictions leave earlier ones."""
    cluster = job_id.partition(".")[0]
    site = None
    for event in read_events(path):
        if event.number == EXECUTE and event.job_id.partition(".")[0] == cluster:
            site = attribute(event, name) or site
    return site


def job_history(path: Path, job_id: str, site_attribute: str) -> JobHistory:
    """What the log says of ``job_id``; a job that ran again is judged by its last run."""
    values: dict[str, object] = {}
    started: datetime | None = None
    evicted: list[datetime] = []
    starts = 0
    for event in read_events(path):
        if event.job_id != job_id:
            continue
        if event.number == SUBMIT:  # what came before was another queue's job of this number
            values, started, evicted, starts = {}, None, [], 0
        elif event.number == EXECUTE:
            starts += 1
            started = event.at
            values.update(site=attribute(event, site_attribute) or values.get("site"), hold_reason=None, hold_code=None)
        elif event.number == EVICTED and started is not None:  # one that is logged twice is one
            evicted.append(event.at)
        elif event.number in (HELD, ABORTED) and evicted[-1:] == [event.at]:
            evicted.pop()  # what a hold or a removal ends is logged as evicted too
        if event.number == IMAGE_SIZE:
            values.update(_memory(_MEMORY_EVENT, event.body))
        elif event.number == TERMINATED:
            values.update(_termination(event), **_memory(_MEMORY_TABLE, event.body))
        elif event.number == HELD:
            hold_code = _HOLD_CODE.search(event.body)
            values.update(hold_reason=_first_line(event.body), hold_code=int(hold_code.group(1)) if hold_code else None)
        elif event.number == ABORTED:
            values["removed_reason"] = _first_line(event.body) or event.title
        if event.number in (EVICTED, TERMINATED, HELD, ABORTED) and started is not None:
            lasted = (event.at - started).total_seconds()
            values["wall_seconds"] = lasted if lasted >= 0 else None  # the clock was set back by an unknown amount
            started = None  # what comes before the next start is no time that it ran
    return JobHistory(**values, starts=starts, evictions=len(evicted))  # type: ignore[arg-type]


def _termination(event: LogEvent) -> dict[str, object]:
    signal, usage = _SIGNAL.search(event.body), _USAGE.search(event.body)
    found: dict[str, object] = {"exit_signal": int(signal.group(1)) if signal else None}
    if usage:
        each = [int(number) * seconds for number, seconds in zip(usage.groups(), (86400, 3600, 60, 1) * 2)]
        found["cpu_seconds"] = float(sum(each))
    return found


def _memory(pattern: re.Pattern[str], body: str) -> dict[str, object]:
    found = pattern.search(body)
    return {"memory_mb": int(found.group(1))} if found else {}


def _first_line(body: str) -> str:
    return next((line.strip() for line in body.splitlines() if line.strip()), "")
