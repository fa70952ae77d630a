"""Reading cmsRun's framework job report (``FrameworkJobReport.xml``), whole or cut off, as a stream. Owns that XML form.

A job that was killed leaves a report that stops anywhere; what was complete before that is read, and ``complete`` is False.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from ..contract import codes
from ..contract.lumis import LumiCounts

#: XML 1.0 has no room for these, exception texts sometimes do; a bare & comes from unescaped PFNs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9A-Fa-f]+);)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
ROOT = "FrameworkJobReport"
EDM_MODULE = "PoolOutputModule"
_MIXING_SOURCES = ("EmbeddedRootSource", "SecSource")
_CDATA_START, _CDATA_END = "<![CDATA[", "]]>"
#: How CDATA's end is written where it is text.
_CDATA_INSIDE = "]]]]><![CDATA[>"
_ERROR, _ERROR_END = "<FrameworkError", "</FrameworkError>"
#: A start tag whose values may hold what XML forbids there; of one that is torn its first characters are looked at.
_ERROR_TAG = re.compile(r"""<FrameworkError(?:[^<>"']|"[^"]*"|'[^']*')*>""")
_ERROR_STATUS = re.compile(r"""ExitStatus\s*=\s*["']?\s*([+-]?[0-9]{1,9})(?=["'\s/>])""")
_ERROR_TYPE = re.compile(r"""Type\s*=\s*"([^"\n]*)"|Type\s*=\s*'([^'\n]*)'""")
_LONGEST_ERROR, _LONGEST_TAG, _MOST_ERRORS = 64 * 1024, 500, 100
_LONGEST_ENTITY = 12
_PORTION = 256 * 1024
#: Newer releases end their report in advance, with this error, and write over that while they live: no exception, a cut.
_UNFINISHED = 8901


class InputFileReport(NamedTuple):
    """A file that the source opened; ``kind`` is primaryFiles, secondaryFiles or mixingFiles."""

    lfn: str
    pfn: str
    kind: str
    events_read: int
    lumis: LumiCounts


class OutputFileReport(NamedTuple):
    """A file that an output module wrote. ``guid``: the identifier inside it, None for formats other than EDM."""

    pfn: str
    module: str
    events: int
    lumis: LumiCounts
    guid: str | None = None


class FrameworkError(NamedTuple):
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


def read_framework_report(path: Path, encoding: str = "utf-8") -> FrameworkReport:
    """Read a report in portions; a missing or empty file gives an incomplete, empty report with the problem named."""
    try:
        with path.open(encoding=encoding, errors="replace", newline="") as stream:
            report = parse_framework_stream(iter(lambda: stream.read(_PORTION), ""))
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
    found, repair, errors, blank = _Found(), _Repair(), _ErrorScan(), True
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    stream = iter(portions)
    try:
        for portion in stream:
            blank = blank and not portion.strip()
            errors.feed(portion)
            parser.feed(repair.feed(portion))
            found.take(parser.read_events())
        if blank:
            return None
        parser.feed(repair.end())
        try:
            parser.close()
        finally:
            found.take(parser.read_events())
    except ParseError as error:
        for portion in stream:
            errors.feed(portion)
        found.take_errors(errors.end())
        return found.report(complete=False, problem=f"the report is cut off or damaged in line {error.position[0]}")
    if found.root != ROOT:
        return FrameworkReport(problem=f"no {ROOT}: its first element is {found.root}", written=False)
    return found.report(complete=not found.unfinished, problem="cmsRun ended before its report" if found.unfinished else "")


class _Repair:
    """Removes control characters and what goes on too long in CDATA, escapes bare ampersands outside CDATA, and CDATA's end
    inside an error's text, in text that comes in portions.
    """

    def __init__(self) -> None:
        self._in_cdata = False
        self._held = ""  # too short to know what it begins
        self._length = 0  # of the CDATA so far

    def feed(self, portion: str) -> str:
        """What is certain of the text so far."""
        text, done = self._held + _FORBIDDEN.sub("", portion), []
        while text:
            mark = _CDATA_END if self._in_cdata else _CDATA_START
            before, found, text = text.partition(mark)
            if not found:
                keep = self._unsure(before)
                self._held = before[len(before) - keep :]
                done.append(self._text(before[: len(before) - keep]))
                return "".join(done)
            if self._in_cdata and not text.lstrip():  # what follows shows whether it is the end
                self._held = found + text
                done.append(self._text(before))
                return "".join(done)
            if self._in_cdata and not text.lstrip().startswith("<"):
                done += [self._text(before), _CDATA_INSIDE if self._length < _LONGEST_ERROR else ""]
                self._length += len(mark)
                continue
            done += [self._text(before), mark]
            self._length = 0
            self._in_cdata = not self._in_cdata
        self._held = ""
        return "".join(done)

    def end(self) -> str:
        """The rest."""
        text, self._held = self._held, ""
        return self._text(text)

    def _text(self, text: str) -> str:
        if not self._in_cdata:
            return _BARE_AMPERSAND.sub("&amp;", text)
        length, self._length = self._length, self._length + len(text)
        return text if self._length <= _LONGEST_ERROR else text[: max(0, _LONGEST_ERROR - length)]

    def _unsure(self, text: str) -> int:
        """How many characters at the end may begin a mark or an entity."""
        if self._in_cdata:
            return min(len(text), len(_CDATA_END) - 1)
        entity = text.rfind("&", max(0, len(text) - _LONGEST_ENTITY))
        mark = text.rfind("<", max(0, len(text) - len(_CDATA_START) + 1))
        return max((len(text) - at for at in (entity, mark) if at >= 0), default=0)


class _ErrorScan:
    """Looks for errors beside the parser: what stands in their text or in their ``Type`` may break the XML, the code not."""

    def __init__(self) -> None:
        self._text = ""
        self._found: list[FrameworkError] = []

    def feed(self, portion: str) -> None:
        """Take what is whole by now."""
        self._text += portion
        while (at := self._text.find(_ERROR)) >= 0:
            ends = [self._text.find(mark, at + len(_ERROR)) for mark in (_ERROR_END, _ERROR)]
            end = min((each for each in ends if each >= 0), default=at + _LONGEST_ERROR)
            if end > len(self._text):
                self._text = self._text[at:]
                return
            self._take(self._text[at:end])
            self._text = self._text[end:]
        self._text = self._text[-len(_ERROR) :]

    def end(self) -> list[FrameworkError]:
        """All of them, the last one also when it was cut off."""
        if self._text.startswith(_ERROR):
            self._take(self._text)
        return self._found

    def _take(self, text: str) -> None:
        tag = _ERROR_TAG.match(text)
        head = tag.group(0) if tag else text[:_LONGEST_TAG]
        status, kind = _ERROR_STATUS.search(head), _ERROR_TYPE.search(head)
        if (status is None and tag is None) or len(self._found) >= _MOST_ERRORS:
            return
        said = _FORBIDDEN.sub("", text[len(head) if tag else 0 :]).replace(_CDATA_START, "").replace(_CDATA_END, "")
        found = kind.group(1) or kind.group(2) or "" if kind else ""
        self._found.append(FrameworkError(_status(status.group(1) if status else None), found, said.strip()))


class _Found:
    """What the finished children of the root say, so that a cut-off report still gives what came before the cut."""

    def __init__(self) -> None:
        self.root = ""
        self.unfinished = False
        self._open: list[Element] = []
        self._inputs: list[InputFileReport] = []
        self._outputs: list[OutputFileReport] = []
        self._skipped: list[str] = []
        self._errors: list[FrameworkError] = []
        self._seen_errors = 0
        self._metrics: dict[str, dict[str, str]] = {}

    def take(self, events: Iterable[Any]) -> None:
        """Keep what has been parsed by now; ParseError where that ends in the middle."""
        for event, element in events:
            if event == "start":
                self.root = self.root or _name(element)
                self._open.append(element)
            else:
                self._open.pop()
                if len(self._open) == 1:
                    self._child(element)
                    self._open[0].clear()

    def _child(self, child: Element) -> None:
        name = _name(child)
        if name == "InputFile":
            read, lumis = _whole(_text(child, "EventsRead")), _lumis(child)
            # without InputType the source's class counts, embedded sources being those of mixing modules
            kind = _text(child, "InputType") or ("mixingFiles" if _text(child, "InputSourceClass") in _MIXING_SOURCES else "")
            self._inputs.append(InputFileReport(_text(child, "LFN"), _text(child, "PFN"), kind, read, lumis))
        elif name == "File":
            events = _whole(_text(child, "TotalEvents"))
            guid = _text(child, "GUID") if _text(child, "OutputModuleClass") == EDM_MODULE else None
            self._outputs.append(OutputFileReport(_text(child, "PFN"), _text(child, "ModuleLabel"), events, _lumis(child), guid))
        elif name == "SkippedFile":
            self._skipped.append(child.get("Lfn") or child.get("Pfn") or "")
        elif name == "FrameworkError":
            text = "".join(child.itertext()).strip()
            self._error(FrameworkError(_status(child.get("ExitStatus")), child.get("Type") or "", text))
        elif name == "PerformanceReport":
            for summary in child.iterfind("{*}PerformanceSummary"):
                values = {each.get("Name") or "": each.get("Value") or "" for each in summary.iterfind("{*}Metric")}
                self._metrics.setdefault(summary.get("Metric") or "", {}).update(values)

    def _error(self, error: FrameworkError) -> None:
        self._seen_errors += 1
        if error.exit_status == _UNFINISHED:
            self.unfinished = True
        else:
            self._errors.append(error)

    def take_errors(self, found: list[FrameworkError]) -> None:
        """Of all errors of a damaged report those that were not parsed."""
        for error in found[self._seen_errors :]:
            self._error(error)

    def report(self, *, complete: bool, problem: str) -> FrameworkReport:
        return FrameworkReport(
            tuple(self._inputs), tuple(self._outputs), tuple(self._skipped), tuple(self._errors), self._metrics, complete, problem
        )


def _name(element: Element) -> str:
    """A namespace changes nothing."""
    return element.tag.rpartition("}")[2]


def _text(element: Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}", "").strip()


def _lumis(file: Element) -> LumiCounts:
    counts: LumiCounts = {}
    for run in file.iterfind("{*}Runs/{*}Run"):
        lumis = counts.setdefault(_whole(run.get("ID")), {})
        for lumi in run.iterfind("{*}LumiSection"):
            events = lumi.get("NEvents") or ""  # older releases write none, and 2^64-2 says twice that it was not counted
            lumis[_whole(lumi.get("ID"))] = _whole(events) if _WHOLE.fullmatch(events) else None
    return counts


def _status(text: str | None) -> int:
    """The code of an error; an error without one is an error all the same."""
    found = _whole(text)
    return found if found or (text or "").strip() == "0" else codes.EXIT_CODE_UNKNOWN


def _whole(text: str | None) -> int:
    return int(text) if text and _WHOLE.fullmatch(text.strip()) else 0
