"""The report of one attempt (``<node>.<attempt>.report.json``) and its logs. Owns schema ``wms2.report/1``.

A report is written for every attempt that gets to run, also for a failed or stopped one; what is in it is what had been
done by then. Not its reading: see ``collecting.py`` and ``post.py``.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..run import slot
from ..run.checks import Processed, ReadFile
from ..run.slot import Slot
from ..run.storage import StoredFile
from . import codes, files, lumis
from .codes import PayloadError
from .layout import REPORT_SCHEMA, logs_name, report_name, utc_now
from .lumis import LumiCounts

_MESSAGE_CHARACTERS = 4000
_LOG_BYTES = 256 * 1024
_LOGS_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class StepRecord:
    """One cmsRun (or merge command) as it ended. Memory in MB of 1024 x 1024 bytes."""

    number: int
    name: str
    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    threads: int
    peak_rss_mb: float
    events_read: int
    events_written: int
    skipped_files: tuple[str, ...] = ()
    input_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputRecord:
    """A file that was staged out."""

    step: str
    module: str
    dataset: str
    stored: StoredFile
    events: int
    lumis: LumiCounts
    parents: tuple[str, ...]


@dataclass
class AttemptReport:
    """Collects what happens in an attempt and writes the report when the attempt ends, however it ends.

    A context manager: a PayloadError inside becomes the report's exit code and is not passed on; any other error is
    recorded as it is and goes on (the process then ends with Python's own status).
    """

    node: str
    attempt: int
    role: str
    slot: Slot
    directory: Path
    steps_directory: Path
    exit_code: int = codes.SUCCESS
    exit_step: str | None = None
    error_message: str = ""
    steps: list[StepRecord] = field(default_factory=list)
    processed: Processed | None = None
    outputs: list[OutputRecord] = field(default_factory=list)
    started_at: str = field(default_factory=utc_now)

    def __enter__(self) -> AttemptReport:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, PayloadError):
            self.exit_code, self.error_message = error.code, error.message
        elif error is not None:
            self.exit_code, self.error_message = codes.UNEXPECTED, f"unexpected {type(error).__name__}: {error}"
        self._write()
        return isinstance(error, PayloadError)

    def _write(self) -> None:
        write_logs(self.steps_directory, self.directory / logs_name(self.node, self.attempt))
        files.write_json(self.directory / report_name(self.node, self.attempt), self.document())

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        done = self.processed
        return {
            "schema": REPORT_SCHEMA,
            "node": self.node,
            "attempt": self.attempt,
            "fence": self.slot.fence,
            "job_id": self.slot.job_id,
            "execution": self.slot.execution,
            "unit": self.slot.unit,
            "role": self.role,
            "site": self.slot.site,
            "host": self.slot.host,
            "schedd": self.slot.schedd,
            "started_at": self.started_at,
            "ended_at": utc_now(),
            "exit_code": self.exit_code,
            "exit_step": self.exit_step,
            "error_message": self.error_message[:_MESSAGE_CHARACTERS],
            "steps": [_step_document(step) for step in self.steps],
            "processed": {
                "events": done.events if done else 0,
                "lumis": lumis.compact(done.lumis) if done else {},
                "files": [_read_document(file) for file in done.files] if done else [],
            },
            "outputs": [_output_document(output) for output in self.outputs],
            "cgroup_peak_mb": slot.cgroup_peak_mb(),
        }


def _read_document(file: ReadFile) -> dict[str, Any]:
    return {"lfn": file.lfn, "events": file.events, "first_event": file.first_event, "last_event": file.last_event}


def _step_document(step: StepRecord) -> dict[str, Any]:
    return {
        "number": step.number,
        "name": step.name,
        "exit_code": step.exit_code,
        "wall_seconds": round(step.wall_seconds, 3),
        "cpu_seconds": round(step.cpu_seconds, 3),
        "threads": step.threads,
        "peak_rss_mb": round(step.peak_rss_mb, 1),
        "events_read": step.events_read,
        "events_written": step.events_written,
        "skipped_files": list(step.skipped_files),
        "input_files": list(step.input_files),
    }


def _output_document(output: OutputRecord) -> dict[str, Any]:
    return {
        "module": output.module,
        "step": output.step,
        "dataset": output.dataset,
        "lfn": output.stored.lfn,
        "pfn": output.stored.pfn,
        "rse": output.stored.rse,
        "size_bytes": output.stored.size_bytes,
        "adler32": output.stored.adler32,
        "events": output.events,
        "lumis": lumis.counts_to_json(output.lumis),
        "parents": list(output.parents),
    }


def write_logs(steps_directory: Path, target: Path) -> None:
    """Pack the ads of job and machine, configurations, framework reports and the ends of the logs of every step; bounded."""
    total = 0
    with tarfile.open(target, "w:gz") as archive:
        for name, data in slot.ads():
            _add(archive, name, data)
        for path in sorted(steps_directory.glob("*/*")):
            if path.suffix not in (".py", ".json", ".xml", ".stdout", ".stderr") or not path.is_file() or path.is_symlink():
                continue
            data = _end_of(path)
            total += len(data)
            if total > _LOGS_BYTES:
                break
            _add(archive, str(path.relative_to(steps_directory)), data, int(path.stat().st_mtime))


def _add(archive: tarfile.TarFile, name: str, data: bytes, modified: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(data), modified
    archive.addfile(entry, io.BytesIO(data))


def _end_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(0, io.SEEK_END)
        stream.seek(max(0, stream.tell() - _LOG_BYTES))
        return stream.read()
