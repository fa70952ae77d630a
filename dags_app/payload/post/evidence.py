"""What a job report says of a failure: the whole exit code, the message, the step, the input files it names. Pure.

Three forms: WMS2's own report (``wms2.report/1``), cmsRun's framework report (XML), WMCore's job report (JSON). Owns how an
exit code is found in each, and which files of a message count as bad input.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..contract import codes
from ..contract.layout import REPORT_SCHEMA
from ..contract.rules import Evidence
from ..run import fjr
from ..run.fjr import FrameworkReport

#: Longest message kept; the end of cmsRun's stderr may be in it.
MESSAGE_CHARACTERS = 4000

#: How many lines of stderr about storage are kept beside a message.
_ANSWERS = 40
#: What a line of stderr that speaks of storage has in it.
_STORAGE = re.compile(
    r"(?i)\b\w+://|xrd|xroot|\[(?:error|fatal) *\]|davix|gfal|globus|srm|dcap|dcache|eos|neon|curl|TFile|T\w+File::|R__unzip"
    r"|TBasket|TBuffer|storage|\bsec_|secgsi|seckrb5|ztn|krb5|gss|ssl|tls|/store/|open\(\)|\.root\b"
)
_LFN = re.compile(r"/store/[A-Za-z0-9_./+=-]+\.root")
#: Lines in which cmsRun says that it goes on well.
_PROGRESS = re.compile(r"(?i)\b(initiating request to open|successfully opened|closed) file\b")
#: Codes that WMCore adds to whatever failed before: they never say what it was.
_WMCORE_CONSEQUENCES = frozenset({codes.NOT_RUN_AFTER_FAILURE, codes.REPORT_LOST, codes.REPORT_EMPTY, codes.REPORT_UNUSABLE})
#: WMCore's steps after cmsRun: when cmsRun has failed they fail too.
_WMCORE_AFTERWARDS = re.compile(r"(?i)stageout|logarch|logcollect|upload")
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}")
#: JSON reports are read whole; no job writes a larger one.
_MOST_BYTES = 64 * 1024 * 1024
_HEAD_BYTES = 4096


@dataclass(frozen=True)
class ReportReading:
    """A report as read. ``evidence`` is None for a success, and when nothing usable is there; ``problem`` then says why.

    ``inputs``: the input files that it speaks of; empty where it has none or they are unknown.
    """

    evidence: Evidence | None
    problem: str = ""
    inputs: tuple[str, ...] = ()


def read_report(path: Path) -> ReportReading:
    """Read a report of any of the three forms, recognized by their contents. XML is read as a stream, JSON up to a bound."""
    try:
        with path.open("rb") as raw:
            head = raw.read(_HEAD_BYTES)
        encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        if head.decode(encoding, "replace").lstrip().startswith("<"):
            return of_framework_report(fjr.read_framework_report(path, encoding))
        size = path.stat().st_size
        if size > _MOST_BYTES:
            return ReportReading(None, f"{path.name} has {size} bytes, more than the {_MOST_BYTES} that are read")
        text = path.read_bytes().decode(encoding, "replace")
    except OSError as error:
        return ReportReading(None, f"{path.name} cannot be read: {error.strerror or error}")
    if not text.strip():
        return ReportReading(None, f"{path.name} is empty")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return ReportReading(None, f"{path.name} is cut off or damaged: {error}")
    if not isinstance(document, dict):
        return ReportReading(None, f"{path.name} is no job report")
    if str(document.get("schema", "")).startswith(REPORT_SCHEMA):
        return of_own_report(document)
    if "steps" in _fields(document.get("fwjr", document)):
        return of_wmcore_report(document)
    return ReportReading(None, f"{path.name} is no job report of a known form")


def of_own_report(report: dict[str, Any], inputs: Iterable[str] | None = None) -> ReportReading:
    """Of ``wms2.report/1``. ``inputs``: the job's input files; without them those that the first step opened or skipped."""
    code, message = report.get("exit_code"), str(report.get("error_message") or "")
    steps = [_fields(step) for step in _items(report.get("steps"))]
    if not isinstance(code, int) or isinstance(code, bool):
        return ReportReading(None, "the report has no exit code")
    if code == codes.SUCCESS:
        return ReportReading(None)
    skipped = _texts(lfn for step in steps for lfn in _items(step.get("skipped_files")))
    opened = _texts(_items(steps[0].get("input_files"))) if steps else []
    known = list(inputs) if inputs is not None else [*opened, *skipped]
    step, site = str(report.get("exit_step") or ""), str(report.get("site") or "")
    return _failed(_whole(code), message, known, skipped, step, site)


def of_framework_report(report: FrameworkReport, inputs: Iterable[str] | None = None) -> ReportReading:
    """Of cmsRun's own report, also a cut-off one. A skipped input file is a failure although cmsRun ends well."""
    known = list(inputs) if inputs is not None else [file.lfn or file.pfn for file in report.primary_inputs]
    error = next((error for error in report.errors if error.exit_status != codes.SUCCESS), None)
    if error is not None:
        return _failed(_whole(error.exit_status), f"{error.kind}: {error.text}", known, report.skipped_files)
    if not report.complete:
        return ReportReading(None, report.problem, tuple(known))
    return _skipped(known, report.skipped_files) if report.skipped_files else ReportReading(None)


def of_wmcore_report(document: dict[str, Any]) -> ReportReading:
    """Of WMCore's report as WMArchive keeps it: the first error of a working step that is no consequence of another.

    What has another form than WMCore writes is passed over; without an error such a report shows no success.
    """
    report = _fields(document.get("fwjr", document))
    steps = _wmcore_steps(report.get("steps"))
    errors = [(name, error) for name, step in steps.items() for error in map(_fields, _items(step.get("errors"))) if error]
    errors.sort(key=_rank)
    sources = [step.get("input") for step in steps.values()]
    lists = [files for source in sources for files in (source.values() if isinstance(source, dict) else [source])]
    known = _texts(_fields(file).get("lfn") for files in lists for file in _items(files))
    left = [(file, _fields(file)) for file in _items(report.get("skippedFiles"))]
    skipped = _texts(fields.get("LogicalFileName") or fields.get("PhysicalFileName") or file for file, fields in left)
    site = next((str(step["site"]) for step in steps.values() if isinstance(step.get("site"), str)), "")
    if errors:
        name, error = errors[0]
        text = "\n".join(f"{one.get('type', '')}: {one.get('details', '')}" for step, one in errors if step == name)
        return _failed(_whole(error.get("exitCode")) or codes.REPORT_UNUSABLE, text, known, skipped, name, site)
    state = document.get("jobstate") or _fields(document.get("meta_data")).get("jobstate")
    statuses = {name: _whole(step["status"]) for name, step in steps.items() if step.get("status") is not None}
    failed = next((name for name, status in statuses.items() if status != 0), None)
    if failed is not None or (steps and str(state or "success") != "success"):
        code = codes.REPORT_UNUSABLE if failed is None else statuses[failed]
        text = f"step {failed or 'unknown'} failed and names no error"
        return ReportReading(Evidence(code if code > 1 else codes.REPORT_UNUSABLE, text, failed or "", site))
    if skipped:
        return _skipped(known, skipped, site)
    if not steps:
        return ReportReading(None, "the report has no step")
    if not statuses and state is None:
        return ReportReading(None, "the report does not say how its steps ended")
    if not all(step and isinstance(step.get("errors") or [], list) for step in steps.values()):
        return ReportReading(None, "a step of the report has not the form that WMCore writes")
    return ReportReading(None)


def _failed(
    code: int, message: str, known: Sequence[str], skipped: Sequence[str], step: str = "", site: str = ""
) -> ReportReading:
    found = bad_files(message, known, skipped)
    return ReportReading(Evidence(code, message[:MESSAGE_CHARACTERS], step, site, found), inputs=tuple(known))


def _skipped(known: Sequence[str], skipped: Sequence[str], site: str = "") -> ReportReading:
    text = f"skipped {len(skipped)} files: {', '.join(skipped)}"
    return _failed(codes.INPUT_SKIPPED, text, [*known, *skipped], skipped, site=site)


def _wmcore_steps(steps: Any) -> dict[str, dict[str, Any]]:
    """Steps by name, from the object of WMCore's own documents or the list of WMArchive's long-term ones."""
    if isinstance(steps, dict):
        return {name: _fields(step) for name, step in steps.items()}
    named = [_fields(step) for step in _items(steps)]
    return {str(step.get("name") or f"step{number}"): step for number, step in enumerate(named, 1)}


def bad_files(message: str, inputs: Iterable[str], skipped: Iterable[str] = ()) -> tuple[str, ...]:
    """Input files that were skipped, or that the message names by LFN or at the end of a PFN; each once, in order.

    A file that is not among the job's inputs (a file of an earlier step, pile-up) is not the input's fault.
    """
    known = {_lfn(name) for name in inputs}
    named = [*(_lfn(name) for name in skipped), *(_known_end(path, known) for path in _LFN.findall(message))]
    return tuple(dict.fromkeys(name for name in named if name in known))


def named_by(stderr: str, inputs: Iterable[str]) -> tuple[str, ...]:
    """Input files that a line of stderr speaks of; else the one that was opened last, if none but input files is named at all."""
    known = {_lfn(name) for name in inputs}
    lines = [line for line in stderr.splitlines() if _LFN.search(line)]
    spoken = bad_files("\n".join(line for line in lines if not _PROGRESS.search(line)), known)
    if spoken or any(_known_end(path, known) not in known for line in lines for path in _LFN.findall(line)):
        return spoken
    return bad_files(lines[-1], known) if lines and "Closed" not in lines[-1] else ()


def _lfn(name: str) -> str:
    found = _LFN.search(name)
    return found.group(0) if found else name


def _known_end(path: str, known: set[str]) -> str:
    """The LFN at the end of a PFN whose directories have a ``/store`` of their own before it."""
    ends = (path[found.start() :] for found in re.finditer("/store/", path))
    return next((end for end in ends if end in known), path)


def _rank(error: tuple[str, dict[str, Any]]) -> int:
    """Watchers of the job first, then what ran, what comes after it, and last what only follows from it.

    WMCore writes cmsRun's 8 bits beside its code.
    """
    name, code = error[0], _whole(error[1].get("exitCode"))
    if code in _WMCORE_CONSEQUENCES:
        return 3
    if _WMCORE_AFTERWARDS.search(name):
        return 2
    return 0 if code > 255 else 1


def _whole(value: Any) -> int:
    """An exit code written as a number or as text; -n is signal n. Anything else gives ``REPORT_UNUSABLE``."""
    text = "" if isinstance(value, bool) else str(value).strip()
    code = int(text) if _WHOLE.fullmatch(text) else codes.REPORT_UNUSABLE
    return codes.of_process(code)


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(values: Iterable[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str) and value]


def evidence_of_ending(reading: ReportReading, exit_code: int | None, stderr: str = "") -> Evidence | None:
    """A report together with how the process ended; None for a success. The report's code goes before the process's.

    Without a usable report the process's code is believed when it is a whole one (above 255) or a signal's; of other codes only
    8 bits are left, which say nothing sure. ``stderr`` is added to the message, so that patterns see it; files that only it names
    count when the report has them as input, or has no input at all.
    """
    exit_code = None if exit_code is None else codes.of_process(exit_code)
    named = named_by(stderr, reading.inputs or _LFN.findall(stderr))
    if reading.evidence is not None:
        found = reading.evidence
        if asks_storage(found):
            return with_answers(found, stderr, reading.inputs or named)
        files = tuple(dict.fromkeys((*found.bad_files, *named)))
        return Evidence(found.code, _joined(found.message, stderr), found.step, found.site, files)
    if not reading.problem:
        if not exit_code:
            return None
        text = f"the report says 0, the process ended with {exit_code}"
        return Evidence(exit_code if is_sure(exit_code) else codes.ENDINGS_DIFFER, _joined(text, stderr))
    text = reading.problem if exit_code is None else f"{reading.problem}; the process ended with {exit_code}"
    code = codes.REPORT_LOST if exit_code is None else code_without_report(exit_code, named)
    return Evidence(code, _joined(text, stderr), bad_files=named)


def asks_storage(evidence: Evidence) -> bool:
    """Whether it was about reading an input file, so that what its storage said decides."""
    return evidence.code in codes.UNREAD or bool(evidence.bad_files)


def with_answers(evidence: Evidence, stderr: str, inputs: Iterable[str]) -> Evidence:
    """A failure to read a file, with what the lines of stderr about storage say of it.

    cmsRun's report often says no more than which file it was. Lines that name none but other files say nothing of this one. A
    file that was skipped over its storage is one that could not be opened.
    """
    mine = set(evidence.bad_files) or {_lfn(name) for name in inputs}
    said = []
    for line in filter(_STORAGE.search, stderr.splitlines()):
        named = _LFN.findall(line)
        if not named or not mine or any(_known_end(path, mine) in mine for path in named):
            said.append(line.strip())
    if not said:
        return evidence
    answers = "\n".join(said[-_ANSWERS:])[-MESSAGE_CHARACTERS:]
    code = codes.FILE_OPEN_FAILED if evidence.code == codes.INPUT_SKIPPED else evidence.code
    bad = evidence.bad_files or (() if _LFN.search(evidence.message) else named_by(stderr, mine))
    return replace(evidence, code=code, message=_joined(evidence.message, answers), bad_files=bad)


def code_without_report(exit_code: int, named: Iterable[str]) -> int:
    """The code of a job that left no usable report. Its 8 bits are believed where they are those of a file that could not be
    read and stderr names an input file, which no other failure does by chance."""
    if is_sure(exit_code):
        return exit_code
    return codes.UNREADABLE_8_BITS.get(exit_code, codes.REPORT_LOST) if tuple(named) else codes.REPORT_LOST


def is_sure(code: int) -> bool:
    """Whether a process's exit code says by itself what ended it: a whole code, or a signal's."""
    return code > 255 or codes.SIGNAL_BASE < code <= codes.SIGNAL_BASE + 31


def _joined(message: str, stderr: str) -> str:
    return "\n".join(part for part in (message, stderr[-MESSAGE_CHARACTERS:]) if part)
