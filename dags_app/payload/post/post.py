"""The POST script of processing and merge nodes: what happened in this attempt, and what DAGMan is to do next.

Owns ``<node>.post.json`` (``wms2.post/1``, the shape of error-handling 2.3), ``<node>.attempts.jsonl`` and the order in which the
side files are written. Facts are ``attempts``'s, the verdict is ``classify``'s; no daemon is asked. A script that DAGMan
runs again for the same attempt, after a crash, to end a cool-off or long after it, repeats none of its effects.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..contract import codes, failure_log, files, layout, packed, rules, scripts
from ..contract.codes import PayloadError
from ..contract.convert import to_json
from ..contract.reading import Value, json_lines, load_document
from ..contract.rules import Evidence, RuleBook, load_rules
from ..contract.step_profile import read_step_profile
from . import attempts, cooloff, eventlog, kept_logs, resources
from .attempts import AttemptFacts, PostCall
from .classify import SUCCESS, Classification, Situation, classify

_LOCK = ".post.lock"
_LOG_TAIL_LINES = 200
_ATTEMPTS_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Judged:
    """An attempt with everything that its side files say of it."""

    facts: AttemptFacts
    evidence: Evidence | None
    verdict: Classification
    asked: resources.Asked | None
    site: str


def run_post(directory: Path, node: str, return_value: int, retry: int, max_retries: int, job_id: str) -> int:
    """Judge the attempt and leave its side files in ``directory``; the POST script's exit status."""
    call = PostCall(node, return_value, retry, max_retries, job_id)
    with ExitStack() as stack:
        with suppress(OSError):  # a file system without locks, or a full disk: then DAGMan alone keeps scripts apart
            stack.enter_context(files.locked(directory / _LOCK))
        waiting = cooloff.go_on(directory, call)
        return _judge(directory, call) if waiting is None else waiting


def _judge(directory: Path, call: PostCall) -> int:
    past = _past_attempts(directory, call.node)
    before = next((line for line in reversed(past) if _is_of(line, call)), None)
    late = _is_late(directory, call, past, before)
    if late and before is not None:
        return _status_then(before)
    fence = scripts.submission_fence(directory)
    facts = _facts(directory, call)
    told = facts.report["site"].text() if facts.report is not None else ""
    site = told or facts.history.site or scripts.elected_site(directory) or ""
    evidence = attempts.evidence_of(directory, call, facts, site)
    if evidence is None:
        failure_log.note_success(directory.parent, fence)
        whole = _note(directory, _record(directory, call, Judged(facts, None, SUCCESS, None, site)), None, past)
        kept_logs.settle(directory, whole)
        if not late:
            files.write_json(directory / layout.post_name(call.node), whole)
        return codes.POST_DONE
    book = load_rules(directory.parent / layout.RULES_FILE)
    asked = _asked(directory, call, past)
    situation = _situation(directory, call, book, past, asked, site)
    if _has_waited(facts.history):
        situation = replace(situation, earlier_faults=situation.earlier_faults + 1)
    verdict = classify(evidence, book, situation)
    if facts.history.evictions:
        verdict = replace(verdict, reason=f"{verdict.reason}; the job was evicted {facts.history.evictions} times before")
    record = _record(directory, call, Judged(facts, evidence, verdict, asked, site))
    if record["final"] and failure_log.fails_everywhere(directory.parent, fence, record, book.limits.same_error_units):
        verdict = _everywhere(verdict, book)
        record = _record(directory, call, Judged(facts, evidence, verdict, asked, site))
    whole = _note(directory, record, evidence, past)
    if late:
        kept_logs.settle(directory, whole)
        return verdict.exit_status
    _prepare_retry(directory, call, verdict, site)
    kept_logs.settle(directory, whole)
    files.write_json(directory / layout.post_name(call.node), whole)
    if verdict.exit_status != codes.POST_RETRY or record["final"]:
        return verdict.exit_status
    return cooloff.begin(directory, call, verdict.cooloff_seconds, book.limits.cooloff_seconds)


def _facts(directory: Path, call: PostCall) -> AttemptFacts:
    report, problem = attempts.read_attempt_report(directory, call)
    history = eventlog.job_history(directory / layout.CLUSTER_LOG, call.job_id, layout.SITE_ATTRIBUTE)
    merged = call.node == layout.MERGE and report is not None and report["exit_code"].integer() == codes.SUCCESS
    return AttemptFacts(report, history, problem, _manifest_problem(directory, report) if merged and report is not None else "")


def _manifest_problem(directory: Path, report: Value) -> str:
    """Why the unit's manifest is not the one this merge job wrote in the current submission; empty when it is."""
    try:
        manifest = load_document(directory / layout.MANIFEST_FILE, layout.MANIFEST_SCHEMA)
        fence, job_id, unit = manifest["fence"].integer(), manifest["job_id"].text(), manifest["unit"].text()
        for output in manifest["outputs"].items():
            if not list(output["files"].items()):
                return f"{layout.MANIFEST_FILE} has no file of {output['dataset'].text()}"
    except PayloadError as error:
        return error.message
    current = scripts.submission_fence(directory)
    if (job_id, unit) != (report["job_id"].text(), report["unit"].text()):
        return f"{layout.MANIFEST_FILE} is of job {job_id} and unit {unit}, not of this merge job"
    if manifest.get("execution") is not None and manifest["execution"].raw != report.raw.get("execution"):
        return f"{layout.MANIFEST_FILE} is of another start of job {job_id} than its report"
    if fence != current:
        return f"{layout.MANIFEST_FILE} has fence {fence}, the current submission has {current}"
    return ""


def _asked(directory: Path, call: PostCall, past: list[dict[str, Any]]) -> resources.Asked | None:
    """What this attempt asked for. When this script has run for it before, ``memory.inc`` speaks of the next one already."""
    asked = resources.asked_by(directory, call.node)
    for line in past:
        if asked is not None and _is_of(line, call) and isinstance(line["job"].get("request_memory_mb"), int):
            return asked._replace(memory_mb=line["job"]["request_memory_mb"])
    return asked


def _situation(
    directory: Path, call: PostCall, book: RuleBook, past: list[dict[str, Any]], asked: resources.Asked | None, site: str
) -> Situation:
    faults = [
        line
        for line in past
        if line["classification"].get("category") == rules.INFRASTRUCTURE
        and line["job"].get("site") == site
        and line.get("fence") == scripts.submission_fence(directory)
        and not _is_of(line, call)
    ]
    return Situation(
        attempt=call.retry,
        max_retries=call.max_retries,
        earlier_faults=len(faults),
        other_site=bool(site and resources.landing_sites(directory) - scripts.avoided_sites(directory) - {site}),
        memory_mb=asked.memory_mb if asked else None,
        most_memory_mb=asked.cores * book.limits.max_memory_per_core_mb if asked else None,
        fewer_processes=call.node != layout.MERGE and _divides(directory.parent, call.retry),
    )


def _has_waited(history: eventlog.JobHistory) -> bool:
    """Whether this job itself has been given to the site again and again, or waited for it for days: once more is too much."""
    return bool(re.search(rf"WMS2: ({layout.STARTED_TOO_OFTEN}|{layout.IDLE_TOO_LONG}) ", history.hold_reason or ""))


def _divides(dag: Path, attempt: int) -> bool:
    try:
        return read_step_profile(dag).divides(attempt)
    except PayloadError:  # a damaged one has failed the job by itself
        return False


def _everywhere(verdict: Classification, book: RuleBook) -> Classification:
    """Going on is pointless: error-handling 2.5."""
    told = f"{verdict.reason}; {book.limits.same_error_units} work units failed with this error and nothing else has ended"
    return replace(verdict, retryable=False, action=rules.ABORT_DAG, exit_status=codes.POST_ABORT_DAG, reason=told)


def _prepare_retry(directory: Path, call: PostCall, verdict: Classification, site: str) -> None:
    if verdict.memory_mb is not None:
        resources.raise_memory(directory, call.node, verdict.memory_mb)
    if verdict.code == codes.OVER_WALL_TIME and verdict.retryable:
        resources.raise_wall(directory, call.node)
    if verdict.leave_site:
        scripts.avoid_site(directory, site)
        scripts.log(directory, f"post: {call.node} gave up at {site}, the unit is to land elsewhere")


def _record(directory: Path, call: PostCall, judged: Judged) -> dict[str, Any]:
    report, history, verdict = judged.facts.report, judged.facts.history, judged.verdict
    whole: dict[str, Any] = report.raw if report is not None else {}
    logs = layout.logs_name(call.node, call.retry, call.job_id)
    return {
        "schema": layout.POST_SCHEMA,
        "node_name": call.node,
        "timestamp": layout.utc_now(),
        "attempt": call.retry,
        "max_retries": call.max_retries,
        "final": not verdict.retryable or call.retry >= call.max_retries,
        "unit": whole.get("unit") or directory.name,
        "role": whole.get("role") or (layout.MERGE if call.node == layout.MERGE else layout.PROCESSING),
        "fence": whole.get("fence", scripts.submission_fence(directory)),
        "job_id": call.job_id,
        "report": layout.report_name(call.node, call.retry) if report is not None else None,
        "logs": logs if (directory / logs).is_file() else None,
        "job": {
            "exit_code": whole.get("exit_code", call.return_value),
            "return_value": call.return_value,
            "exit_signal": history.exit_signal,
            "hold_reason": history.hold_reason,
            "hold_code": history.hold_code,
            "removed_reason": history.removed_reason,
            "starts": history.starts,
            "evictions": history.evictions,
            "wall_time_sec": history.wall_seconds,
            "cpu_time_sec": history.cpu_seconds or _cpu_of_steps(whole),
            "memory_mb": history.memory_mb,
            "request_memory_mb": judged.asked.memory_mb if judged.asked else None,
            "site": judged.site or None,
            "schedd": whole.get("schedd"),
        },
        "cmssw": _cmssw(whole) if report is not None else None,
        "classification": {
            **to_json(verdict),
            "step": judged.evidence.step if judged.evidence else "",
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


def _note(directory: Path, record: dict[str, Any], evidence: Evidence | None, past: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the attempt to the logs, where it is not there already; what ``post.json`` is to hold.

    Before anything is changed for the next attempt: a script that is run again reads here what this one had asked for.
    ``post.json`` comes last: who reads it finds everything else in place.
    """
    node, retry = record["node_name"], record["attempt"]
    whole = {**record, "log_tail": _log_tail(directory, node, retry, record["job_id"], failed=evidence is not None)}
    submitted = not record["job_id"].startswith("-")  # jobs that never were have one id, and their numbers begin anew
    if not any(_same_call(line, record) for line in (past if submitted else past[-1:])):
        if evidence is not None:
            failure_log.append_failure(directory.parent, whole, evidence.message)
        files.append_line(directory / layout.attempts_name(node), json.dumps(record))
    return whole


def _log_tail(directory: Path, node: str, retry: int, job_id: str, *, failed: bool) -> str:
    """The end of the job's stderr, after that of the program that failed inside it."""
    own = files.tail_text(directory / layout.stderr_name(node, retry), _LOG_TAIL_LINES)
    program = packed.last_stderr(directory, node, retry, job_id, _LOG_TAIL_LINES) if failed else ""
    return "\n".join("\n".join(part for part in (program, own) if part).splitlines()[-_LOG_TAIL_LINES:])


def _past_attempts(directory: Path, node: str) -> list[dict[str, Any]]:
    """Recorded attempts of a node, oldest first; a line that a crash cut off is left out."""
    lines = json_lines(files.tail_text(directory / layout.attempts_name(node), 1000, max_bytes=_ATTEMPTS_BYTES))
    return [line for line in lines if isinstance(line.get("job"), dict) and isinstance(line.get("classification"), dict)]


def _is_of(line: dict[str, Any], call: PostCall) -> bool:
    return (line.get("job_id"), line.get("attempt")) == (call.job_id, call.retry) and call.submitted


def _is_late(directory: Path, call: PostCall, past: list[dict[str, Any]], before: dict[str, Any] | None) -> bool:
    """Whether a later attempt of the node was judged already: DAGMan may run a script again minutes after it ended.

    Numbers of attempts begin anew with a rescue and a re-election; numbers of jobs only go up within one submission.
    """
    if not call.submitted:
        return False
    if before is not None and before is not past[-1]:
        return True
    fence = before.get("fence") if before is not None else scripts.submission_fence(directory)
    return any(line.get("fence") == fence and _cluster(str(line.get("job_id"))) > _cluster(call.job_id) for line in past)


def _cluster(job_id: str) -> int:
    number = job_id.partition(".")[0]
    return int(number) if number.isdigit() else -1


def _status_then(line: dict[str, Any]) -> int:
    """What the script ended with when it judged this attempt, its cool-off over."""
    verdict = line["classification"]
    if verdict.get("category") == layout.SUCCESS_CATEGORY:
        return codes.POST_DONE
    if verdict.get("retryable"):
        return codes.POST_RETRY
    return codes.POST_ABORT_DAG if verdict.get("action") == rules.ABORT_DAG else codes.POST_PERMANENT


def _same_call(before: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether a recorded line is of this attempt. What is done about it may differ by now: other units have failed since."""
    old, new = before["classification"], record["classification"]
    same = all(before.get(name) == record[name] for name in ("job_id", "attempt", "fence"))
    return same and all(old.get(name) == new[name] for name in ("category", "code"))
