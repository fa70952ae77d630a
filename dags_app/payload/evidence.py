"""What a job report says of a failure: the whole exit code, the message, the step, the input files it names. Pure.

Three forms: WMS2's own report (``wms2.report/1``), cmsRun's framework report (XML), WMCore's job report (JSON). Owns how an
exit code is found in each, and which files of a message count as bad input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import codes, fjr
from .fjr import FrameworkReport
from .formats import REPORT_SCHEMA
from .rules import Evidence

#: Longest message kept; the end of cmsRun's stderr may be in it.
MESSAGE_CHARACTERS = 4000

_LFN = re.compile(r"/store/[A-Za-z0-9_./+=-]+\.root")
#: Codes that WMCore adds to whatever failed before: they never say what it was.
_WMCORE_CONSEQUENCES = frozenset({codes.NOT_RUN_AFTER_FAILURE, codes.REPORT_LOST, codes.REPORT_EMPTY, codes.REPORT_UNUSABLE})


@dataclass(frozen=True)
class ReportReading:
    """A report as read. ``evidence`` is None for a success, and when nothing usable is there; ``problem`` then says why.

    ``inputs``: the input files that it speaks of; empty where it has none or cannot tell.
    """

    evidence: Evidence | None
    problem: str = ""
    inputs: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        """Whether the report says that the job did its work."""
        return self.evidence is None and not self.problem


def read_report(path: Path) -> ReportReading:
    """Read a report of any of the three forms, told apart by their contents."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return ReportReading(None, f"{path.name} cannot be read: {error.strerror or error}")
    if not text.strip():
        return ReportReading(None, f"{path.name} is empty")
    if text.lstrip().startswith("<"):
        return of_framework_report(fjr.parse_framework_report(text))
    try:
        document = json.loads(text)
    except ValueError as error:
        return ReportReading(None, f"{path.name} is cut off or damaged: {error}")
    if not isinstance(document, dict):
        return ReportReading(None, f"{path.name} is no job report")
    if str(document.get("schema", "")).startswith(REPORT_SCHEMA):
        return of_own_report(document)
    if isinstance(document.get("fwjr", document), dict) and "steps" in document.get("fwjr", document):
        return of_wmcore_report(document)
    return ReportReading(None, f"{path.name} is no job report of a known form")


def of_own_report(report: dict[str, Any], inputs: Iterable[str] | None = None) -> ReportReading:
    """Of ``wms2.report/1``. ``inputs``: the job's input files; without them those that the first step opened or skipped."""
    code, message, steps = report.get("exit_code"), str(report.get("error_message") or ""), report.get("steps") or []
    if not isinstance(code, int):
        return ReportReading(None, "the report has no exit code")
    if code == codes.SUCCESS:
        return ReportReading(None)
    skipped = [lfn for step in steps for lfn in step.get("skipped_files", ())]
    known = list(inputs) if inputs is not None else [*(steps[0].get("input_files", ()) if steps else ()), *skipped]
    step, site = str(report.get("exit_step") or ""), str(report.get("site") or "")
    found = Evidence(code, message[:MESSAGE_CHARACTERS], step, site, bad_files(message, known, skipped))
    return ReportReading(found, inputs=tuple(known))


def of_framework_report(report: FrameworkReport, inputs: Iterable[str] | None = None) -> ReportReading:
    """Of cmsRun's own report, also a cut-off one. A skipped input file is a failure although cmsRun ends well."""
    known = list(inputs) if inputs is not None else [file.lfn or file.pfn for file in report.primary_inputs]
    error = next((error for error in report.errors if error.exit_status != codes.SUCCESS), None)
    if error is not None:
        text = f"{error.kind}: {error.text}"
        found = bad_files(text, known, report.skipped_files)
        return ReportReading(Evidence(error.exit_status, text[:MESSAGE_CHARACTERS], bad_files=found), inputs=tuple(known))
    if not report.complete:
        return ReportReading(None, report.problem, tuple(known))
    if report.skipped_files:
        text = f"skipped {len(report.skipped_files)} files: {', '.join(report.skipped_files)}"
        found = bad_files(text, [*known, *report.skipped_files], report.skipped_files)
        return ReportReading(Evidence(codes.INPUT_SKIPPED, text[:MESSAGE_CHARACTERS], bad_files=found))
    return ReportReading(None)


def of_wmcore_report(document: dict[str, Any]) -> ReportReading:
    """Of WMCore's report as WMArchive keeps it: the first error of a working step that is no consequence of another."""
    report = document.get("fwjr", document)
    steps: dict[str, Any] = report.get("steps") or {}
    errors = [(name, error) for name, step in steps.items() for error in step.get("errors") or ()]
    errors.sort(key=lambda pair: _rank(pair[1]))
    inputs = [file.get("lfn") for step in steps.values() for files in (step.get("input") or {}).values() for file in files]
    known = [lfn for lfn in inputs if lfn]
    skipped = [str(lfn) for lfn in report.get("skippedFiles") or ()]
    site = next((str(step["site"]) for step in steps.values() if isinstance(step.get("site"), str)), "")
    if errors:
        name, error = errors[0]
        text = "\n".join(f"{one.get('type', '')}: {one.get('details', '')}" for step, one in errors if step == name)
        found = bad_files(text, known, skipped)
        evidence = Evidence(_whole(error.get("exitCode")), text[:MESSAGE_CHARACTERS], name, site, found)
        return ReportReading(evidence, inputs=tuple(known))
    failed = [name for name, step in steps.items() if step.get("status") not in (0, None)]
    if failed or str(document.get("jobstate", "success")) != "success":
        name = failed[0] if failed else ""
        code = _whole(steps[name].get("status")) if name else codes.REPORT_UNUSABLE
        text = f"step {name or 'unknown'} failed and names no error"
        return ReportReading(Evidence(code if code > 1 else codes.REPORT_UNUSABLE, text, name, site))
    if skipped:
        text = f"skipped {len(skipped)} files: {', '.join(skipped)}"
        return ReportReading(Evidence(codes.INPUT_SKIPPED, text[:MESSAGE_CHARACTERS], "", site, tuple(skipped)))
    if not steps:
        return ReportReading(None, "the report has no step")
    return ReportReading(None)


def bad_files(message: str, inputs: Iterable[str], skipped: Iterable[str] = ()) -> tuple[str, ...]:
    """Input files that were skipped, or that the message names by LFN or at the end of a PFN; each once, in order.

    A file that is not among the job's inputs (a file of an earlier step, pile-up) is not the input's fault.
    """
    known = {_lfn(name) for name in inputs}
    named = [*(_lfn(name) for name in skipped), *_LFN.findall(message)]
    return tuple(dict.fromkeys(name for name in named if name in known))


def _lfn(name: str) -> str:
    found = _LFN.search(name)
    return found.group(0) if found else name


def _rank(error: dict[str, Any]) -> int:
    """Watchers of the job first, then what ran, then what only follows from it. WMCore writes cmsRun's 8 bits beside its code."""
    code = _whole(error.get("exitCode"))
    if code in _WMCORE_CONSEQUENCES:
        return 2
    return 0 if code > 255 else 1


def _whole(value: Any) -> int:
    text = str(value).strip()
    return int(text) if text.lstrip("-").isdigit() else codes.REPORT_UNUSABLE


def evidence_of_ending(reading: ReportReading, exit_code: int | None, stderr: str = "") -> Evidence | None:
    """A report together with how the process ended; None for a success. The report's code goes before the process's.

    Without a usable report the process's code is believed when it is a whole one (above 255) or a signal's; of other codes only
    8 bits are left, which say nothing sure. ``stderr`` is added to the message, so that patterns see it; files that only it names
    count when the report has them as input, or has no input at all.
    """
    named = bad_files(stderr, reading.inputs or _LFN.findall(stderr))
    if reading.evidence is not None:
        found = reading.evidence
        files = tuple(dict.fromkeys((*found.bad_files, *named)))
        return Evidence(found.code, _joined(found.message, stderr), found.step, found.site, files)
    if reading.is_success:
        if not exit_code:
            return None
        text = f"the report says 0, the process ended with {exit_code}"
        return Evidence(exit_code if _is_sure(exit_code) else codes.ENDINGS_DIFFER, _joined(text, stderr))
    text = reading.problem if exit_code is None else f"{reading.problem}; the process ended with {exit_code}"
    sure = exit_code is not None and _is_sure(exit_code)
    code = exit_code if sure and exit_code is not None else codes.REPORT_LOST
    return Evidence(code, _joined(text, stderr), bad_files=named)


def _is_sure(code: int) -> bool:
    return code > 255 or codes.SIGNAL_BASE < code <= codes.SIGNAL_BASE + 31


def _joined(message: str, stderr: str) -> str:
    return "\n".join(part for part in (message, stderr[-MESSAGE_CHARACTERS:]) if part)
