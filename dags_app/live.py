"""What DAGMan says now: the status files of a DAG and of its units, and DAGMan's log. Reads files, writes and concludes nothing.

The files lie on the submit host's file system; DAGMan rewrites the status files every few seconds. Those of a request that ended
long ago are packed. What cannot be read is explained in words, since a viewer is no place to fail.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dags_app.dagman import DagStatusFile, NodeStatus, read_status
from dags_app.models import DAG
from dags_app.packs import files_of
from dags_app.payload.contract import layout

UNIT_NAME = re.compile(r"mg_[0-9]{6,9}")
DAGMAN_LOG_SUFFIX = ".dagman.out"
#: The most of a log that one answer carries, however long its lines are.
MAX_TAIL_BYTES = 256 * 1024
MAX_TAIL_LINES = 2000


class StatusReading(NamedTuple):
    """A status file as found: its contents, or why they are missing."""

    path: str
    status: DagStatusFile | None
    problem: str

    @property
    def written_at(self) -> datetime | None:
        """By the submit host's clock."""
        return datetime.fromtimestamp(self.status.written_at, UTC) if self.status else None

    @property
    def nodes(self) -> list[NodeStatus]:
        """By name."""
        return sorted(self.status.nodes, key=lambda node: node.name) if self.status else []


class LogTail(NamedTuple):
    """The end of DAGMan's log. ``truncated``: there is more before it."""

    path: str
    lines: tuple[str, ...]
    truncated: bool
    problem: str


def outer_status(dag: DAG) -> StatusReading:
    """The DAG's own nodes, i.e. its work units."""
    return _read(dag, layout.OUTER_STATUS)


def unit_status(dag: DAG, unit: str) -> StatusReading:
    """The nodes of one unit. The file appears when the unit's DAGMan starts."""
    return _read(dag, f"{checked_unit(unit)}/{layout.INNER_STATUS}")


def checked(name: str, form: re.Pattern[str], what: str) -> str:
    """``name``, which may come from an address; ValueError if it has not the form that WMS2 gives."""
    if not form.fullmatch(name):
        raise ValueError(f"{name!r} is no {what}")
    return name


def checked_unit(unit: str) -> str:
    """``checked`` as a work unit's name."""
    return checked(unit, UNIT_NAME, "work unit's name")


def dagman_log_tail(dag: DAG, *, unit: str | None, lines: int) -> LogTail:
    """The last ``lines`` lines of ``workflow.dag.dagman.out``, or of a unit's ``group.dag.dagman.out``; bounded in bytes too."""
    name = layout.OUTER_DAG if unit is None else f"{checked_unit(unit)}/{layout.INNER_DAG}"
    name += DAGMAN_LOG_SUFFIX
    path = Path(dag.submit_dir) / name
    try:
        with files_of(dag.submit_dir, name) as directory, (directory / name).open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - MAX_TAIL_BYTES)
            file.seek(start)
            data = file.read(MAX_TAIL_BYTES)
    except OSError as error:
        return LogTail(str(path), (), truncated=False, problem=_why(error))
    if start:
        data = data[data.find(b"\n") + 1 :]
    found = data.decode("utf-8", errors="replace").splitlines()
    return LogTail(str(path), tuple(found[-lines:]), truncated=start > 0 or len(found) > lines, problem="")


def _read(dag: DAG, name: str) -> StatusReading:
    path = str(Path(dag.submit_dir) / name)
    with files_of(dag.submit_dir, name) as directory:
        try:
            status = read_status(directory / name)
        except (OSError, ValueError, KeyError) as error:
            return StatusReading(path, None, _why(error))
        if status is not None:
            return StatusReading(path, status, "")
        return StatusReading(path, None, "being written just now" if (directory / name).exists() else "not written yet")


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not written yet, or removed"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"not what DAGMan writes: {error}"
