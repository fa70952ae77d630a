"""Reading cmsRun's framework job report (``FrameworkJobReport.xml``), whole or cut off. Owns that XML form.

A job that was killed leaves a report that stops anywhere; what was complete before that is read, and ``complete`` is False.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from . import codes
from .lumis import LumiCounts

#: XML 1.0 has no room for these, exception texts sometimes do; a bare & comes from unescaped PFNs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9A-Fa-f]+);)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
ROOT = "FrameworkJobReport"
_MIXING_SOURCES = ("EmbeddedRootSource", "SecSource")
_CDATA = re.compile(r"(<!\[CDATA\[.*?(?:\]\]>|\Z))", re.DOTALL)


@dataclass(frozen=True)
class InputFileReport:
    """A file that the source opened; ``kind`` is primaryFiles, secondaryFiles or mixingFiles."""

    lfn: str
    pfn: str
    kind: str
    events_read: int
    lumis: LumiCounts


@dataclass(frozen=True)
class OutputFileReport:
    """A file that an output module wrote; ``inputs`` are the LFNs of its parents."""

    lfn: str
    pfn: str
    module: str
    events: int
    lumis: LumiCounts
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class FrameworkError:
    """An exception that ended the run, with the code cmsRun meant (8001), not its 8 bits."""

    exit_status: int
    kind: str
    text: str


@dataclass(frozen=True)
class FrameworkReport:
    """A whole report. ``metrics`` is ``{summary: {name: text}}`` as cmsRun wrote it."""

    inputs: tuple[InputFileReport, ...] = ()
    outputs: tuple[OutputFileReport, ...] = ()
    skipped_files: tuple[str, ...] = ()
    errors: tuple[FrameworkError, ...] = ()
    metrics: dict[str, dict[str, str]] = field(default_factory=dict)
    complete: bool = False
    problem: str = ""
    written: bool = True

    @property
    def primary_inputs(self) -> tuple[InputFileReport, ...]:
        """Input files that events were read from; not parents and not pile-up."""
        return tuple(file for file in self.inputs if file.kind in ("", "primaryFiles"))

    @property
    def read_files(self) -> tuple[InputFileReport, ...]:
        """Input files and their parents; not pile-up, of which a job may open thousands."""
        return tuple(file for file in self.inputs if file.kind != "mixingFiles")

    def output(self, module: str) -> OutputFileReport | None:
        """The file of an output module."""
        return next((file for file in self.outputs if file.module == module), None)

    def metric(self, summary: str, name: str) -> float | None:
        """A metric as a finite number; None when it is absent or ``-nan``."""
        try:
            value = float(self.metrics[summary][name])
        except (KeyError, ValueError):
            return None
        return value if math.isfinite(value) else None


def read_framework_report(path: Path) -> FrameworkReport:
    """Read a report; a missing or empty file gives an incomplete, empty report with the problem named."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return FrameworkReport(problem=f"{path.name} was not written", written=False)
    if not text.strip():
        return FrameworkReport(problem=f"{path.name} is empty", written=False)
    return parse_framework_report(text)


def parse_framework_report(text: str) -> FrameworkReport:
    """Parse the text of a report."""
    parser: XMLPullParser[Any] = XMLPullParser(events=("start", "end"))
    builder = _Builder()
    try:
        parser.feed(_repaired(text))
        builder.take(parser)
        parser.close()
    except ParseError as error:
        return builder.report(complete=False, problem=f"the report is cut off or damaged: {error}")
    if builder.root != ROOT:
        return FrameworkReport(problem=f"no {ROOT}: its first element is {builder.root}", written=False)
    if not builder.closed:
        return builder.report(complete=False, problem="the report is cut off")
    return builder.report(complete=True, problem="")


def _repaired(text: str) -> str:
    """Remove control characters, and escape bare ampersands outside CDATA."""
    parts = _CDATA.split(_FORBIDDEN.sub("", text))
    return "".join(part if part.startswith("<![CDATA[") else _BARE_AMPERSAND.sub("&amp;", part) for part in parts)


class _Builder:
    """Collects the finished children of the root element, so a cut-off report still gives what came before the cut."""

    def __init__(self) -> None:
        self.closed = False
        self.root = ""
        self._depth = 0
        self._inputs: list[InputFileReport] = []
        self._outputs: list[OutputFileReport] = []
        self._skipped: list[str] = []
        self._errors: list[FrameworkError] = []
        self._metrics: dict[str, dict[str, str]] = {}

    def take(self, parser: XMLPullParser[Any]) -> None:
        for item in parser.read_events():
            event, element = cast("tuple[str, Any]", item)
            element.tag = str(element.tag).rpartition("}")[2]  # a namespace changes nothing
            self.root = self.root or str(element.tag)
            self._depth += 1 if event == "start" else -1
            if event == "end" and self._depth == 1:
                self._child(element)
                element.clear()
            self.closed = self._depth == 0

    def _child(self, element: Element) -> None:
        if element.tag == "InputFile":
            self._inputs.append(_input_file(element))
        elif element.tag == "File":
            self._outputs.append(_output_file(element))
        elif element.tag == "SkippedFile":
            self._skipped.append(element.get("Lfn") or element.get("Pfn") or "")
        elif element.tag == "FrameworkError":
            text = (element.text or "").strip()
            self._errors.append(FrameworkError(_status(element.get("ExitStatus")), element.get("Type") or "", text))
        elif element.tag == "PerformanceReport":
            for summary in element.iter("PerformanceSummary"):
                values = self._metrics.setdefault(summary.get("Metric") or "", {})
                values.update({m.get("Name") or "": m.get("Value") or "" for m in summary.iter("Metric")})

    def report(self, *, complete: bool, problem: str) -> FrameworkReport:
        return FrameworkReport(
            tuple(self._inputs), tuple(self._outputs), tuple(self._skipped), tuple(self._errors), self._metrics, complete, problem
        )


def _input_file(element: Element) -> InputFileReport:
    return InputFileReport(
        lfn=_text(element, "LFN"),
        pfn=_text(element, "PFN"),
        kind=_kind(element),
        events_read=_whole(_text(element, "EventsRead")),
        lumis=_lumis(element),
    )


def _kind(element: Element) -> str:
    """``InputType``; where it is not written the source's class tells, embedded sources being those of mixing modules."""
    embedded = _text(element, "InputSourceClass") in _MIXING_SOURCES
    return _text(element, "InputType") or ("mixingFiles" if embedded else "")


def _output_file(element: Element) -> OutputFileReport:
    return OutputFileReport(
        lfn=_text(element, "LFN"),
        pfn=_text(element, "PFN"),
        module=_text(element, "ModuleLabel"),
        events=_whole(_text(element, "TotalEvents")),
        lumis=_lumis(element),
        inputs=tuple(lfn for lfn in (_text(item, "LFN") for item in element.iter("Input")) if lfn),
    )


def _lumis(element: Element) -> LumiCounts:
    """Runs and lumis of a file; older releases write no NEvents, so the events are None."""
    counts: LumiCounts = {}
    for run in element.iter("Run"):
        lumis = counts.setdefault(_whole(run.get("ID")), {})
        for lumi in run.iter("LumiSection"):
            events = lumi.get("NEvents")
            lumis[_whole(lumi.get("ID"))] = None if events is None else _whole(events)
    return counts


def _text(element: Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _status(text: str | None) -> int:
    """The code of an error; an error without one is an error all the same."""
    found = _whole(text)
    return found if found or (text or "").strip() == "0" else codes.EXIT_CODE_UNKNOWN


def _whole(text: str | None) -> int:
    return int(text) if text and _WHOLE.fullmatch(text.strip()) else 0
