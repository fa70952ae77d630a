"""Reading cmsRun's framework job report (``FrameworkJobReport.xml``), whole or cut off, as a stream. Owns that XML form.

A job that was killed leaves a report that stops anywhere; what was complete before that is read, and ``complete`` is False.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO
from xml.etree.ElementTree import ParseError, XMLParser

from ..contract import codes
from ..contract.lumis import LumiCounts

#: XML 1.0 has no room for these, exception texts sometimes do; a bare & comes from unescaped PFNs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9A-Fa-f]+);)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
ROOT = "FrameworkJobReport"
_MIXING_SOURCES = ("EmbeddedRootSource", "SecSource")
_CDATA_START, _CDATA_END = "<![CDATA[", "]]>"
_LONGEST_ENTITY = 12
_PORTION = 256 * 1024
_CHILD = 2  # depth of the root's children
#: Newer releases end their report in advance, with this error, and write over that while they live: no exception, a cut.
_UNFINISHED = 8901


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
    """Read a report in portions; a missing or empty file gives an incomplete, empty report with the problem named."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as stream:
            report = parse_framework_stream(portions_of(stream))
    except FileNotFoundError:
        return FrameworkReport(problem=f"{path.name} was not written", written=False)
    return report if report is not None else FrameworkReport(problem=f"{path.name} is empty", written=False)


def parse_framework_report(text: str) -> FrameworkReport:
    """Parse the text of a report."""
    return parse_framework_stream([text]) or FrameworkReport(problem="the report is empty", written=False)


def parse_framework_stream(portions: Iterable[str]) -> FrameworkReport | None:
    """Parse a report that comes in portions; None when there is nothing but blanks in it.

    What is kept goes with what the report says, runs and lumis, and not with its length: no element outlives its end.
    """
    builder, repair, blank = _Builder(), _Repair(), True
    parser = XMLParser(target=builder)  # noqa: S314  expat fetches nothing, and bounds what entities expand to
    try:
        for portion in portions:
            blank = blank and not portion.strip()
            parser.feed(repair.feed(portion))
        if blank:
            return None
        parser.feed(repair.end())
        parser.close()
    except ParseError as error:
        return builder.report(complete=False, problem=f"the report is cut off or damaged: {error}")
    if builder.root != ROOT:
        return FrameworkReport(problem=f"no {ROOT}: its first element is {builder.root}", written=False)
    return builder.report(complete=not builder.unfinished, problem="cmsRun ended before its report" if builder.unfinished else "")


def portions_of(stream: TextIO) -> Iterator[str]:
    """What ``parse_framework_stream`` takes."""
    return iter(lambda: stream.read(_PORTION), "")


class _Repair:
    """Removes control characters, and escapes bare ampersands outside CDATA, in text that comes in portions."""

    def __init__(self) -> None:
        self._in_cdata = False
        self._held = ""  # too short to tell what it begins

    def feed(self, portion: str) -> str:
        """What can be told of the text so far."""
        text, done = self._held + _FORBIDDEN.sub("", portion), []
        while text:
            mark = _CDATA_END if self._in_cdata else _CDATA_START
            before, found, text = text.partition(mark)
            if not found:
                keep = self._unsure(before)
                self._held = before[len(before) - keep :]
                done.append(self._mended(before[: len(before) - keep]))
                return "".join(done)
            done += [self._mended(before), mark]
            self._in_cdata = not self._in_cdata
        self._held = ""
        return "".join(done)

    def end(self) -> str:
        """The rest."""
        text, self._held = self._held, ""
        return self._mended(text)

    def _mended(self, text: str) -> str:
        return text if self._in_cdata else _BARE_AMPERSAND.sub("&amp;", text)

    def _unsure(self, text: str) -> int:
        """How many characters at the end may begin a mark or an entity."""
        if self._in_cdata:
            return min(len(text), len(_CDATA_END) - 1)
        entity = text.rfind("&", max(0, len(text) - _LONGEST_ENTITY))
        mark = text.rfind("<", max(0, len(text) - len(_CDATA_START) + 1))
        return max((len(text) - at for at in (entity, mark) if at >= 0), default=0)


class _Builder:
    """Takes elements as the parser meets them and keeps what the finished children of the root say, so that a cut-off report
    still gives what came before the cut. A target of ``XMLParser``; its method names are the parser's."""

    def __init__(self) -> None:
        self.root = ""
        self.unfinished = False
        self._path: list[str] = []
        self._inputs: list[InputFileReport] = []
        self._outputs: list[OutputFileReport] = []
        self._skipped: list[str] = []
        self._errors: list[FrameworkError] = []
        self._metrics: dict[str, dict[str, str]] = {}
        self._open = _Child({})
        self._text: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]  # a namespace changes nothing
        self.root = self.root or name
        self._path.append(name)
        depth = len(self._path)
        if depth == _CHILD:
            self._open = _Child(attributes)
            self._text = [] if name == "FrameworkError" else None
        elif depth > _CHILD and self._path[_CHILD - 1] != "FrameworkError":
            self._text = [] if depth == _CHILD + 1 or self._path[-2] == "Input" else None
            self._inside(name, attributes)

    def _inside(self, name: str, attributes: dict[str, str]) -> None:
        child = self._open
        if name == "Run":
            child.run = child.lumis.setdefault(_whole(attributes.get("ID")), {})
        elif name == "LumiSection" and "Run" in self._path:
            events = attributes.get("NEvents") or ""  # older releases write none, and 2^64-2 says twice that nobody counted
            child.run[_whole(attributes.get("ID"))] = _whole(events) if _WHOLE.fullmatch(events) else None
        elif name == "PerformanceSummary":
            child.summary = child.metrics.setdefault(attributes.get("Metric") or "", {})
        elif name == "Metric":
            child.summary[attributes.get("Name") or ""] = attributes.get("Value") or ""

    def data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def end(self, _tag: str) -> None:
        name, depth = self._path.pop(), len(self._path) + 1
        text = "".join(self._text or ()).strip()
        if depth == _CHILD:
            self._child(name, self._open)
        elif depth > _CHILD and self._path[_CHILD - 1] == "FrameworkError":
            return  # its text goes on
        elif depth == _CHILD + 1:
            self._open.fields.setdefault(name, text)
        elif depth > _CHILD + 1 and self._path[-1] == "Input" and name == "LFN" and text:
            self._open.parents.append(text)
        self._text = None

    def close(self) -> None:
        """The end of the document."""

    def _child(self, tag: str, child: _Child) -> None:
        fields, attributes = child.fields, child.attributes
        if tag == "InputFile":
            read = _whole(fields.get("EventsRead"))
            self._inputs.append(InputFileReport(fields.get("LFN", ""), fields.get("PFN", ""), _kind(fields), read, child.lumis))
        elif tag == "File":
            self._outputs.append(
                OutputFileReport(
                    lfn=fields.get("LFN", ""),
                    pfn=fields.get("PFN", ""),
                    module=fields.get("ModuleLabel", ""),
                    events=_whole(fields.get("TotalEvents")),
                    lumis=child.lumis,
                    inputs=tuple(child.parents),
                )
            )
        elif tag == "SkippedFile":
            self._skipped.append(attributes.get("Lfn") or attributes.get("Pfn") or "")
        elif tag == "FrameworkError":
            text = "".join(self._text or ()).strip()
            error = FrameworkError(_status(attributes.get("ExitStatus")), attributes.get("Type") or "", text)
            if error.exit_status == _UNFINISHED:
                self.unfinished = True
            else:
                self._errors.append(error)
        elif tag == "PerformanceReport":
            for name, values in child.metrics.items():
                self._metrics.setdefault(name, {}).update(values)

    def report(self, *, complete: bool, problem: str) -> FrameworkReport:
        return FrameworkReport(
            tuple(self._inputs), tuple(self._outputs), tuple(self._skipped), tuple(self._errors), self._metrics, complete, problem
        )


@dataclass
class _Child:
    """What an unfinished child of the root element has said."""

    attributes: dict[str, str]
    fields: dict[str, str] = field(default_factory=dict)
    parents: list[str] = field(default_factory=list)
    lumis: LumiCounts = field(default_factory=dict)
    run: dict[int, int | None] = field(default_factory=dict)
    metrics: dict[str, dict[str, str]] = field(default_factory=dict)
    summary: dict[str, str] = field(default_factory=dict)


def _kind(fields: dict[str, str]) -> str:
    """``InputType``; where it is not written the source's class tells, embedded sources being those of mixing modules."""
    embedded = fields.get("InputSourceClass") in _MIXING_SOURCES
    return fields.get("InputType") or ("mixingFiles" if embedded else "")


def _status(text: str | None) -> int:
    """The code of an error; an error without one is an error all the same."""
    found = _whole(text)
    return found if found or (text or "").strip() == "0" else codes.EXIT_CODE_UNKNOWN


def _whole(text: str | None) -> int:
    return int(text) if text and _WHOLE.fullmatch(text.strip()) else 0
