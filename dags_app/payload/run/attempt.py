"""An attempt as it goes on: what has been done by now, and the report of it, written however the attempt ends.

A report is written for every attempt that gets to run, also for a failed or stopped one. Its parts are ``contract.reports``'s.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..contract import codes, files, packed
from ..contract.codes import PayloadError
from ..contract.convert import to_json
from ..contract.layout import CLEANUP, REPORT_SCHEMA, logs_name, report_name, utc_now
from ..contract.reports import OutputRecord, Processed, Slot, StepRecord
from . import slot

_MESSAGE_CHARACTERS = 4000
_WRAPPER_LINES = 2000


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
        self._write("".join(traceback.format_exception(kind, error, trace)) if error is not None else "")
        return isinstance(error, PayloadError)

    def _write(self, failure: str) -> None:
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
            "steps": [to_json(step) for step in self.steps],
            "processed": to_json(self.processed or Processed(0, set(), ())),
            "outputs": [to_json(output) for output in self.outputs],
            "cgroup_peak_mb": slot.cgroup_peak_mb(),
        }
