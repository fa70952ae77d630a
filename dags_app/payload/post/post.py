"""The POST script of processing and merge nodes: what happened in this attempt, and what DAGMan is to do next.

Owns ``<node>.post.json`` (``wms2.post/1``, the shape of error-handling 2.3), ``<node>.attempts.jsonl`` and the order in which the
side files are written. Facts are ``attempts``'s, the verdict is ``classify``'s; no daemon is asked. A script that DAGMan
runs again for the same attempt, after a crash, to end a cool-off or long after it, repeats none of its effects.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..contract import codes, failure_log, files, layout, rules, scripts
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
_HISTORY = ("exit_signal", "hold_reason", "hold_code", "removed_reason", "starts", "evictions")


def run_post(directory: Path, node: str, return_value: int, retry: int, max_retries: int, job_id: str) -> int:
    """Judge the attempt and leave its side files in ``directory``; the POST script's exit status."""
    call = PostCall(node, return_value, retry, max_retries, job_id)
    with ExitStack() as stack:
        with suppress(OSError):  # a file system without locks, or a full disk: then DAGMan alone keeps scripts apart
            stack.enter_context(files.locked(directory / _LOCK))
        waiting = cooloff.go_on(directory, call)
        return _judge(directory, call) if waiting is None else waiting


def _judge(directory: Path, call: PostCall) -> int:
    lines = json_lines(files.tail_text(directory / layout.attempts_name(call.node), 1000, max_bytes=_ATTEMPTS_BYTES))
    past = [line for line in lines if isinstance(line.get("job"), dict) and isinstance(line.get("classification"), dict)]
    dag, fence = directory.parent, scripts.submission_fence(directory)
    # another queue may have given the same number to a job of an earlier submission
    before = next((line for line in reversed(past) if _is_of(line, call) and line.get("fence") == fence), None)
    late = _is_late(directory, call, past, before)
    if late and before is not None:
        return _status_then(before)
    # jobs that were never submitted have one id, and their numbers begin anew
    known = past if call.submitted or late else past[-1:]
    facts = _facts(directory, call)
    reported = facts.report["site"].text() if facts.report is not None else ""
    site = reported or facts.history.site or scripts.elected_site(directory) or ""
    evidence = attempts.evidence_of(directory, call, facts, site)
    if evidence is None:
        if not failure_log.did_well(dag, fence):
            files.write_atomic(dag / layout.SUCCEEDED_FILE, str(fence))
        whole = _note(directory, call, _record(directory, call, facts, SUCCESS, site), None, known)
        kept_logs.settle(directory, whole)
        if not late:
            files.write_json(directory / layout.post_name(call.node), whole)
        return codes.POST_DONE
    book = load_rules(dag / layout.RULES_FILE)
    asked = _asked(directory, call, before)
    verdict = classify(evidence, book, _situation(directory, call, book, past, asked, facts, site))
    if facts.history.evictions:
        verdict = replace(verdict, reason=f"{verdict.reason}; the job was evicted {facts.history.evictions} times before")
    record = _record(directory, call, facts, verdict, site, asked, evidence.step)
    if record["final"] and failure_log.fails_everywhere(dag, fence, record, book.limits.same_error_units):  # error-handling 2.5
        why = f"{book.limits.same_error_units} work units failed with this error and nothing else has ended"
        verdict = replace(verdict, retryable=False, action=rules.ABORT_DAG, reason=f"{verdict.reason}; {why}")
        verdict = replace(verdict, exit_status=codes.POST_ABORT_DAG)
        record = _record(directory, call, facts, verdict, site, asked, evidence.step)
    whole = _note(directory, call, record, evidence, known)
    if not late:
        _prepare_retry(directory, call, verdict, site, past)
    kept_logs.settle(directory, whole)
    if not late:
        files.write_json(directory / layout.post_name(call.node), whole)
    if late or verdict.exit_status != codes.POST_RETRY or record["final"]:
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


def _asked(directory: Path, call: PostCall, before: dict[str, Any] | None) -> resources.Asked | None:
    """What this attempt asked for. When this script has run for it before, ``memory.inc`` speaks of the next one already."""
    asked = resources.asked_by(directory, call.node)
    memory_mb = before["job"].get("request_memory_mb") if before is not None else None
    return asked._replace(memory_mb=memory_mb) if asked is not None and isinstance(memory_mb, int) else asked


def _situation(
    directory: Path,
    call: PostCall,
    book: RuleBook,
    past: list[dict[str, Any]],
    asked: resources.Asked | None,
    facts: AttemptFacts,
    site: str,
) -> Situation:
    # a job that was given to the site again and again, or waited for it for days, is a fault by itself: once more is too much
    has_waited = re.search(rf"WMS2: ({layout.STARTED_TOO_OFTEN}|{layout.IDLE_TOO_LONG}) ", facts.history.hold_reason or "")
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
        earlier_faults=len(faults) + bool(has_waited),
        other_site=bool(site and resources.landing_sites(directory) - scripts.avoided_sites(directory) - {site}),
        memory_mb=asked.memory_mb if asked else None,
        most_memory_mb=asked.cores * book.limits.max_memory_per_core_mb if asked else None,
        fewer_processes=call.node != layout.MERGE and _divides(directory.parent, call.retry),
    )


def _divides(dag: Path, attempt: int) -> bool:
    """Whether any step runs as several processes at an attempt, so that the next one runs fewer."""
    try:
        return any(run.at(attempt).processes > 1 for run in read_step_profile(dag).steps.values())
    except PayloadError:  # a damaged one has failed the job by itself
        return False


def _prepare_retry(directory: Path, call: PostCall, verdict: Classification, site: str, past: list[dict[str, Any]]) -> None:
    short = {_key(line) for line in past if line["classification"].get("code") == codes.OVER_WALL_TIME and not _is_of(line, call)}
    over = verdict.code == codes.OVER_WALL_TIME and verdict.retryable
    resources.ask_for_more(directory, call.node, verdict.memory_mb, len(short) + 1 if over else 0)
    if verdict.leave_site:
        avoided = directory / layout.AVOID_INCLUDE
        sites = ",".join(sorted(scripts.listed_sites(avoided) | {site}))
        files.write_atomic(avoided, f"{layout.UNIT_AVOID_MACRO} = {sites}\n")
        scripts.log(directory, f"post: {call.node} gave up at {site}, the unit is to land elsewhere")


def _record(
    directory: Path,
    call: PostCall,
    facts: AttemptFacts,
    verdict: Classification,
    site: str,
    asked: resources.Asked | None = None,
    step: str = "",
) -> dict[str, Any]:
    report, history = facts.report, facts.history
    whole: dict[str, Any] = report.raw if report is not None else {}
    logs = layout.logs_name(call.node, call.retry, call.job_id)
    # HTCondor without cgroups misses what short processes use, and says 0; the steps' own figures are better than that
    steps = whole.get("steps")
    cpu_seconds = round(sum(each["cpu_seconds"] for each in steps), 3) if steps else None
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
            **{name: getattr(history, name) for name in _HISTORY},
            "wall_time_sec": history.wall_seconds,
            "cpu_time_sec": history.cpu_seconds or cpu_seconds,
            "memory_mb": history.memory_mb,
            "request_memory_mb": asked.memory_mb if asked else None,
            "site": site or None,
            "schedd": whole.get("schedd"),
        },
        "cmssw": _cmssw(whole) if report is not None else None,
        "classification": {**to_json(verdict), "step": step},
    }


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


def _note(
    directory: Path, call: PostCall, record: dict[str, Any], evidence: Evidence | None, known: list[dict[str, Any]]
) -> dict[str, Any]:
    """Add the attempt to the logs, where it is not among the ``known``; what ``post.json`` is to hold.

    Before anything is changed for the next attempt: a script that is run again reads here what this one had asked for.
    ``post.json`` comes last: who reads it finds everything else in place.
    """
    own = directory / layout.stderr_name(call.node, call.retry)
    tail = attempts.stderr(directory, call, _LOG_TAIL_LINES) if evidence else files.tail_text(own, _LOG_TAIL_LINES)
    whole = {**record, "log_tail": "\n".join(tail.splitlines()[-_LOG_TAIL_LINES:])}
    if _key(record) not in map(_key, known):
        if evidence is not None:
            failure_log.append_failure(directory.parent, whole, evidence.message)
        files.append_line(directory / layout.attempts_name(call.node), json.dumps(record))
    return whole


def _is_of(line: dict[str, Any], call: PostCall) -> bool:
    return (line.get("job_id"), line.get("attempt")) == (call.job_id, call.retry) and call.submitted


def _is_late(directory: Path, call: PostCall, past: list[dict[str, Any]], before: dict[str, Any] | None) -> bool:
    """Whether a later attempt of the node was judged already: DAGMan may run a script again minutes after it ended.

    Numbers of attempts begin anew with a rescue and a re-election; numbers of jobs only go up within one submission.
    """
    if not call.submitted:  # all have one id; what was judged last goes when attempts begin anew
        try:
            last = load_document(directory / layout.post_name(call.node), layout.POST_SCHEMA).raw
        except PayloadError:
            return False
        return bool(last["fence"] == scripts.submission_fence(directory) and last["attempt"] > call.retry)
    if before is not None and before is not past[-1]:
        return True
    fence = scripts.submission_fence(directory)
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


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    """What attempts differ in. Not what is done about one: that may be decided otherwise later, when more units have failed."""
    verdict = line["classification"]
    return (line.get("job_id"), line.get("attempt"), line.get("fence"), verdict.get("category"), verdict.get("code"))
