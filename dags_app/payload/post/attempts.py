"""The facts of one attempt: its report, its packed logs, the event log. Turns them into evidence; judges nothing.

Which source counts: a report of this very job goes before everything, since it has the whole code, unless it only says that it
was asked to stop; then HTCondor's reason for that counts. Without a report the packed logs may hold cmsRun's own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..contract import codes, files, packed
from ..contract.codes import PayloadError
from ..contract.documents import read_unit
from ..contract.layout import REPORT_SCHEMA, logs_name, report_name, stderr_name
from ..contract.reading import Value, load_document
from ..contract.rules import Evidence
from ..run import fjr
from .eventlog import JobHistory
from .evidence import (
    MESSAGE_CHARACTERS,
    asks_storage,
    code_without_report,
    is_sure,
    named_by,
    of_framework_report,
    of_own_report,
    with_answers,
)

_LOST_REPORT_LINES, _ANSWER_LINES = 20, 2000
_HELD_BY_A_PERSON = 1  # HoldReasonCode; such a job is out of the queue because a person removed it


class PostCall(NamedTuple):
    """The macros DAGMan passes: $JOB $RETURN $RETRY $MAX_RETRIES $JOBID."""

    node: str
    return_value: int
    retry: int
    max_retries: int
    job_id: str

    @property
    def submitted(self) -> bool:
        """Whether there was a job at all."""
        return not self.job_id.startswith("-")


class AttemptFacts(NamedTuple):
    """What was found of an attempt. ``report_problem`` and ``manifest_problem`` say why something is not usable."""

    report: Value | None
    history: JobHistory
    report_problem: str = ""
    manifest_problem: str = ""


def read_attempt_report(directory: Path, call: PostCall) -> tuple[Value | None, str]:
    """The report of this very job, or None and why; an older report of the same attempt number is not this job's."""
    try:
        report = load_document(directory / report_name(call.node, call.retry), REPORT_SCHEMA)
        found = report["job_id"].text()
        _check(report)
    except PayloadError as error:
        return None, f"no usable report: {error.message}"
    if found != call.job_id:
        return None, f"no report of job {call.job_id}: {report_name(call.node, call.retry)} is of job {found}"
    return report, ""


def _check(report: Value) -> None:
    """Refuse a report without what is read of it below; the rest is ``collecting``'s to check."""
    report["exit_code"].integer()
    for name in ("unit", "role", "site"):
        report[name].text()
    failed = report.get("exit_step")
    if failed is not None:
        failed.text()
    for step in report["steps"].items():
        step["name"].text()
        for name in ("exit_code", "events_read", "events_written"):
            step[name].integer()
        for name in ("wall_seconds", "cpu_seconds", "peak_rss_mb"):
            step[name].number()
    for file in (*report["processed"]["files"].items(), *report["outputs"].items()):
        file["lfn"].text()


def evidence_of(directory: Path, call: PostCall, facts: AttemptFacts, site: str) -> Evidence | None:
    """What ended the attempt; None when it did its work: process and report end with 0 and nothing is wrong with its files."""
    history, code = facts.history, facts.report["exit_code"].integer() if facts.report is not None else None
    if not call.submitted:
        return Evidence(
            codes.NOT_SUBMITTED, f"no job was submitted (DAGMan says {call.return_value}): see the DAG's dagman.out", site=site
        )
    if facts.report is not None and code not in (codes.SUCCESS, codes.TERMINATED):
        inputs = _inputs(directory, call.node)
        found = of_own_report(facts.report.raw, inputs).evidence
        return found and _answered(directory, call, found, inputs)
    if history.hold_reason is not None and history.hold_code != _HELD_BY_A_PERSON:
        return Evidence(codes.HELD + (history.hold_code or 0), f"held: {history.hold_reason}", site=site)
    if history.removed_reason is not None:
        return Evidence(codes.REMOVED, f"removed: {history.removed_reason}", site=site)
    if history.exit_signal is not None or -codes.SIGNAL_BASE < call.return_value < 0:
        signal = history.exit_signal or -call.return_value
        return Evidence(codes.SIGNAL_BASE + signal, f"ended by signal {signal}", site=site)
    if facts.report is None:
        return _without_report(directory, call, facts.report_problem, site)
    if code == codes.TERMINATED:
        return of_own_report(facts.report.raw).evidence
    if facts.manifest_problem:
        return Evidence(codes.MANIFEST_REFUSED, facts.manifest_problem, site=site)
    if call.return_value != 0:
        ended = call.return_value if is_sure(call.return_value) else codes.ENDINGS_DIFFER
        return Evidence(ended, f"the report says 0, the process ended with {call.return_value}", site=site)
    return None


def _without_report(directory: Path, call: PostCall, problem: str, site: str) -> Evidence:
    """A job that ended by itself and left no report: cmsRun's own, if its logs came back; else all that is known in words."""
    inputs = _inputs(directory, call.node)
    for name, text in packed.framework_reports(directory, call.node, call.retry, call.job_id):
        found = of_framework_report(fjr.parse_framework_report(text), inputs).evidence
        if found is not None:
            return _answered(directory, call, replace(found, step=name, site=site), inputs)
    tail = stderr(directory, call, _LOST_REPORT_LINES)
    last = codes.LAST_WORDS_READ.search(tail)
    if last and codes.exit_status(int(last[1])) == call.return_value:
        return Evidence(int(last[1]), last[2].rstrip()[:MESSAGE_CHARACTERS], site=site)
    named = named_by(tail, inputs or ())
    message = f"{problem}; the process ended with {call.return_value}\n{tail}".rstrip()
    code = code_without_report(call.return_value, named)  # a container hands a signal on as 128 + n
    return Evidence(code, message[:MESSAGE_CHARACTERS], site=site, bad_files=named)


def _answered(directory: Path, call: PostCall, found: Evidence, inputs: tuple[str, ...] | None) -> Evidence:
    """A file that was not read with what the storage said, which often stands in stderr alone."""
    return with_answers(found, stderr(directory, call, _ANSWER_LINES), inputs or ()) if asks_storage(found) else found


def stderr(directory: Path, call: PostCall, lines: int) -> str:
    """The end of what the last program wrote, and of what the job itself wrote after it."""
    own = files.tail_text(directory / stderr_name(call.node, call.retry), lines)
    found = packed.reporting(packed.read_logs(directory / logs_name(call.node, call.retry, call.job_id)))
    program = "\n".join(found.text.splitlines()[-lines:]) if found else ""
    return "\n".join(part for part in (program, own) if part)


def _inputs(directory: Path, node: str) -> tuple[str, ...] | None:
    """Input files of a processing node; none for other nodes, None when ``unit.json`` cannot be read."""
    try:
        jobs = read_unit(directory).jobs
    except PayloadError:
        return None
    return tuple(file.lfn for job in jobs if job.node == node for file in job.files)
