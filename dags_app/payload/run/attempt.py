"""An attempt as it goes on: what has been done by now, and the report of it, written however the attempt ends.

A report is written for every attempt that gets to run, also for a failed or stopped one. Its parts are ``contract.reports``'s.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..contract import codes, files, packed
from ..contract.codes import PayloadError, exit_status
from ..contract.convert import to_json
from ..contract.layout import CLEANUP, REPORT_SCHEMA, logs_name, report_name, utc_now
from ..contract.reports import OutputRecord, Processed, Slot, StepRecord
from . import chirp, credentials, slot
from .processes import stop_requests_as_errors, temporary_files_in

#: Below HTCondor's scratch directory: HTCondor brings back every new file at the top of that.
WORK = "work"
_MESSAGE_CHARACTERS = 4000
_WRAPPER_LINES = 2000


@dataclass
class AttemptReport:
    """What has happened in an attempt, for its report."""

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

    @property
    def exit_status(self) -> int:
        """Of the process: 0 done, else the low byte of the report's code."""
        return exit_status(self.exit_code)

    def write(self, failure: str) -> None:
        """The report first: it is what counts, and no trouble with the logs may end a job that did well otherwise.

        A cleanup that did well leaves no logs, since no script would judge them.
        """
        document = self.document()
        files.write_json(self.directory / report_name(self.node, self.attempt), document)
        if self.role == CLEANUP and self.exit_code == codes.SUCCESS:
            return
        try:
            own = [files.tail_text(self.directory / name, _WRAPPER_LINES) for name in ("_condor_stdout", "_condor_stderr")]
            texts = {
                "environment.txt": slot.environment(),
                "report.json": json.dumps(document, indent=1),
                "wrapper.log": "\n".join(part for part in (*own, failure) if part),
            }
            facts = [*slot.ads(), *((name, text.encode("utf-8", "replace")) for name, text in texts.items())]
            packed.write_logs(self.directory / logs_name(self.node, self.attempt, self.slot.job_id), facts, self.steps_directory)
        except (OSError, ValueError) as error:
            print(f"wms2_payload: the logs could not be packed: {error}", file=sys.stderr)

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "schema": REPORT_SCHEMA,
            "node": self.node,
            "attempt": self.attempt,
            "role": self.role,
            **to_json(self.slot),
            "started_at": self.started_at,
            "ended_at": utc_now(),
            "exit_code": self.exit_code,
            "exit_step": self.exit_step,
            "error_message": self.error_message[:_MESSAGE_CHARACTERS],
            "steps": [to_json(step) for step in self.steps],
            "processed": to_json(self.processed or Processed(0, set(), ())),
            "outputs": [to_json(output) for output in self.outputs],
            "cgroup_peak_mb": slot.cgroup_peak_mb(),
        }


@contextmanager
def attempt_of(directory: Path, node: str, attempt: int, role: str) -> Iterator[AttemptReport]:
    """An attempt in ``directory``, with an empty ``work/`` there; its report is written when it ends, however it ends.

    A PayloadError inside becomes the report's exit code and is not passed on; any other error is recorded as it is and goes on
    (the process then ends with Python's own status).
    """
    work = directory / WORK
    shutil.rmtree(work, ignore_errors=True)  # of a job that HTCondor started again in the same place
    work.mkdir()
    report, failure = AttemptReport(node, attempt, role, slot.read_slot(), directory, work / "steps"), ""
    try:
        with stop_requests_as_errors(ignored_afterwards=True), temporary_files_in(work / "tmp"):
            credentials.check(0.0 if role == CLEANUP else credentials.wall_seconds())
            yield report
    except BaseException as error:
        failure = traceback.format_exc()
        if not isinstance(error, PayloadError):
            report.exit_code, report.error_message = codes.UNEXPECTED, f"unexpected {type(error).__name__}: {error}"
            raise
        report.exit_code, report.error_message = error.code, error.message
    finally:
        report.write(failure)
        chirp.set_number(chirp.EXIT_CODE, report.exit_code)
        shutil.rmtree(work, ignore_errors=True)
