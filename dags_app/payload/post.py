"""The POST script of processing and merge nodes: what happened in this attempt, and what DAGMan is to do next.

Owns ``<node>.post.json`` (``wms2.post/1``, the shape of error-handling 2.3) and ``<node>.attempts.jsonl``. The verdict is
``classify``'s. Facts come from the attempt's report and the job event log; no daemon is asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import eventlog, files, scripts
from .classify import AttemptFacts, Classification, classify
from .codes import PayloadError
from .eventlog import JobHistory
from .formats import (
    MANIFEST_FILE,
    MANIFEST_SCHEMA,
    POST_SCHEMA,
    REPORT_SCHEMA,
    SITE_ATTRIBUTE,
    attempts_name,
    post_name,
    report_name,
    utc_now,
)
from .reading import Value, load_document

MERGE_NODE = "merge"
JOB_LOG = "cluster.log"

_LOG_TAIL_LINES = 200


@dataclass(frozen=True)
class PostCall:
    """The macros DAGMan passes: $JOB $RETURN $RETRY $MAX_RETRIES $JOBID."""

    node: str
    return_value: int
    retry: int
    max_retries: int
    job_id: str


def run_post(directory: Path, node: str, return_value: int, retry: int, max_retries: int, job_id: str) -> int:
    """Judge the attempt and leave its side files in ``directory``; the POST script's exit status."""
    call = PostCall(node, return_value, retry, max_retries, job_id)
    report, problem = _read_report(directory, call)
    history = eventlog.job_history(directory / JOB_LOG, call.job_id, SITE_ATTRIBUTE)
    if call.node == MERGE_NODE and report is not None and not problem and report["exit_code"].integer() == 0:
        problem = _manifest_problem(directory, report)
    facts = AttemptFacts(
        return_value=call.return_value,
        submitted=not call.job_id.startswith("-"),
        report_code=report["exit_code"].integer() if report is not None else None,
        removed=history.removed_reason is not None,
        attempt=call.retry,
        max_retries=call.max_retries,
        problem=problem,
    )
    verdict = classify(facts)
    record = _record(directory, call, report, history, verdict)
    _append_attempt(directory, record)
    record["log_tail"] = files.tail_text(directory / f"{call.node}.{call.retry}.err", _LOG_TAIL_LINES)
    files.write_json(directory / post_name(call.node), record)
    return verdict.exit_status


def _read_report(directory: Path, call: PostCall) -> tuple[Value | None, str]:
    """The report of this very job, or None and why; an older report of the same attempt number is not this job's."""
    try:
        report = load_document(directory / report_name(call.node, call.retry), REPORT_SCHEMA)
        found = report["job_id"].text()
        report["exit_code"].integer()
    except PayloadError as error:
        return None, f"no usable report: {error.message}"
    if found != call.job_id:
        return None, f"no report of job {call.job_id}: {report_name(call.node, call.retry)} is of job {found}"
    return report, ""


def _manifest_problem(directory: Path, report: Value) -> str:
    """Why the unit's manifest is not the one this merge job wrote in the current submission; empty when it is."""
    try:
        manifest = load_document(directory / MANIFEST_FILE, MANIFEST_SCHEMA)
        fence, job_id, unit = manifest["fence"].integer(), manifest["job_id"].text(), manifest["unit"].text()
        for output in manifest["outputs"].items():
            if not list(output["files"].items()):
                return f"{MANIFEST_FILE} has no file of {output['dataset'].text()}"
    except PayloadError as error:
        return error.message
    current = scripts.submission_fence(directory)
    if (job_id, unit) != (report["job_id"].text(), report["unit"].text()):
        return f"{MANIFEST_FILE} is of job {job_id} and unit {unit}, not of this merge job"
    if fence != current:
        return f"{MANIFEST_FILE} has fence {fence}, the current submission has {current}"
    return ""


def _record(
    directory: Path, call: PostCall, report: Value | None, history: JobHistory, verdict: Classification
) -> dict[str, Any]:
    whole: dict[str, Any] = report.raw if report is not None else {}
    return {
        "schema": POST_SCHEMA,
        "node_name": call.node,
        "timestamp": utc_now(),
        "attempt": call.retry,
        "max_retries": call.max_retries,
        "final": not verdict.retryable or call.retry >= call.max_retries,
        "unit": whole.get("unit") or directory.name,
        "role": whole.get("role") or (MERGE_NODE if call.node == MERGE_NODE else "processing"),
        "fence": whole.get("fence", scripts.submission_fence(directory)),
        "job_id": call.job_id,
        "report": report_name(call.node, call.retry) if report is not None else None,
        "job": {
            "exit_code": whole.get("exit_code", call.return_value),
            "return_value": call.return_value,
            "exit_signal": history.exit_signal,
            "hold_reason": history.hold_reason,
            "removed_reason": history.removed_reason,
            "wall_time_sec": history.wall_seconds,
            "cpu_time_sec": history.cpu_seconds or _cpu_of_steps(whole),
            "memory_mb": history.memory_mb,
            "site": whole.get("site") or history.site or scripts.elected_site(directory),
            "schedd": whole.get("schedd"),
        },
        "cmssw": _cmssw(whole) if report is not None else None,
        "classification": {
            "category": verdict.category,
            "retryable": verdict.retryable,
            "bad_input_files": list(verdict.bad_input_files),
            "action": verdict.action,
            "reason": verdict.reason,
        },
    }


def _cpu_of_steps(report: dict[str, Any]) -> float | None:
    """HTCondor without cgroups misses what short processes use, and says 0; the steps' own figures are better than that."""
    steps = report.get("steps")
    return round(sum(step["cpu_seconds"] for step in steps), 3) if steps else None


def _cmssw(report: dict[str, Any]) -> dict[str, Any]:
    """What the steps did, in the names of error-handling 2.3."""
    steps = report.get("steps", [])
    read = steps[0]["events_read"] if steps else 0
    wall = sum(step["wall_seconds"] for step in steps)
    outcome = {step["name"]: {"status": int(step["exit_code"] != 0), "exit_code": step["exit_code"]} for step in steps}
    failed = report.get("exit_step")
    if failed is not None:
        outcome[failed] = {"status": 1, "exit_code": report["exit_code"]}
    return {
        "exit_code": report["exit_code"],
        "steps": outcome,
        "error_message": report.get("error_message", ""),
        "input_files": [file["lfn"] for file in report.get("processed", {}).get("files", [])],
        "output_files": [output["lfn"] for output in report.get("outputs", [])],
        "performance": {
            "peak_rss_mb": max((step["peak_rss_mb"] for step in steps), default=None),
            "avg_event_time_sec": round(wall / read, 6) if read else None,
            "events_read": read,
            "events_written": steps[-1]["events_written"] if steps else 0,
        },
    }


def _append_attempt(directory: Path, record: dict[str, Any]) -> None:
    """Add the attempt to the node's history; a POST script that DAGMan runs again for the same job adds nothing."""
    path = directory / attempts_name(record["node_name"])
    last = files.tail_text(path, 1, max_bytes=1024 * 1024)
    if last and _same_call(last, record):
        return
    files.append_line(path, json.dumps(record))


def _same_call(line: str, record: dict[str, Any]) -> bool:
    try:
        before = json.loads(line)
    except ValueError:
        return False  # a line that a crash cut off
    return all(before.get(name) == record[name] for name in ("job_id", "attempt", "classification"))
