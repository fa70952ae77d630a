"""What POST scripts leave of failures: lines of the failure log, and each node's last verdict."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from dags_app.payload.contract import layout
from dags_app.payload.contract.layout import FAILURES_FILE, post_name
from tests.support.scripted.schedd import Job


def site_fails(job: Job, site: str, attempts: int) -> None:
    """So many attempts at a site fail for the site's sake."""
    for attempt in range(attempts):
        _line(job, site=site, code=60311, category="infrastructure", attempt=attempt, reason="exit code 60311")


def file_is_bad(job: Job, unit: str, lfn: str, *, site: str = "T1_US_FNAL", at: datetime | None = None) -> None:
    """The jobs of a unit have given up over one of their input files at a site; long ago, unless it is said when."""
    node = json.loads((job.directory / unit / layout.UNIT_FILE).read_text())["jobs"][0]["node"]
    verdict = {"category": "data", "bad_input_files": [lfn], "reason": "exit code 8021: cannot read it"}
    when = {"at": at.isoformat()} if at is not None else {}
    reported = {"final": True, "bad_input_files": [lfn], "reason": verdict["reason"], "site": site, **when}
    _line(job, unit=unit, node=node, code=8021, category="data", **reported)
    _verdict(job, unit, node, verdict)


def inputs_of(job: Job, unit: str) -> list[str]:
    """The input files of a unit."""
    asked = json.loads((job.directory / unit / layout.UNIT_FILE).read_text())
    return sorted({file["lfn"] for each in asked["jobs"] for file in each["files"]})


def _verdict(job: Job, unit: str, node: str, verdict: dict[str, Any]) -> None:
    (job.directory / unit / post_name(node)).write_text(json.dumps({"classification": verdict}))


def _line(job: Job, **changes: Any) -> None:
    made = {
        "schema": "wms2.failure/1", "at": "2026-11-21T10:00:00Z", "unit": "mg_000000", "node": "proc_000000",
        "role": "processing", "attempt": 0, "job_id": "7.0", "fence": job.fence, "final": False, "site": "T1_US_FNAL",
        "step": "Gen", "action": "retry", "rule": "scripted", "message": "it broke", "bad_input_files": [], "log_tail": "",
        **changes,
    }  # fmt: skip
    with (job.directory / FAILURES_FILE).open("a") as stream:
        stream.write(json.dumps(made) + "\n")
