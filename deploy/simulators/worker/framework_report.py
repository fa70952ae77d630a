"""Writing cmsRun's framework job report. Owns its XML form: the elements and their order as cmsRun writes them."""

from __future__ import annotations

import os
import resource
import uuid
from dataclasses import dataclass
from pathlib import Path

from .configuration import Output, Plan
from .errors import CmsException
from .profile import Taken
from .sources import InputRead

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})

_BRANCHES = ("EventAuxiliary", "simulatedPayload_simulation__SIM.")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that an output module wrote, with events by (run, lumi), empty lumis included."""

    output: Output
    guid: str
    counts: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, for its report."""

    plan: Plan
    inputs: tuple[InputRead, ...]
    skipped: tuple[str, ...]
    written: tuple[WrittenFile, ...]
    events: int
    taken: Taken
    init_seconds: float
    memory_mb: float = 0.0  # at its peak
    error: CmsException | None = None
    pileup: tuple[InputRead, ...] = ()


def render_report(outcome: Outcome) -> str:
    """The whole report."""
    parts = ["<FrameworkJobReport>\n"]
    parts += [
        f"<SkippedFile Pfn={_quoted(name)} Lfn={_quoted(name if name.startswith('/store/') else '')} />\n"
        for name in outcome.skipped
    ]
    parts += [_input_file(file) for file in (*outcome.inputs, *outcome.pileup)]
    parts += [_output_file(file, outcome.inputs) for file in outcome.written]
    if outcome.error is not None:
        parts.append(_framework_error(outcome.error))
    parts.append("<ReadBranches>\n</ReadBranches>\n")
    parts += [_summary(name, metrics) for name, metrics in _performance(outcome).items()]
    parts.append("<GeneratorInfo>\n</GeneratorInfo>\n</FrameworkJobReport>\n")
    return "".join(parts)


def render_cut_report(outcome: Outcome) -> str:
    """What a process that a signal ended leaves: the input files that were closed, then nothing."""
    return "<FrameworkJobReport>\n" + "".join(_input_file(file) for file in outcome.inputs) + '\n<File>\n<State  Value="op'


def _input_file(file: InputRead) -> str:
    kind, source = ("mixingFiles", "EmbeddedRootSource") if file.mixed_by else ("primaryFiles", "PoolSource")
    identity = _tags(LFN=file.lfn, PFN=file.pfn, Catalog="", ModuleLabel=file.mixed_by or "source")
    read = _tags(InputType=kind, InputSourceClass=source, EventsRead=file.events)
    return (
        f'\n<InputFile>\n<State  Value="closed"/>\n{identity}{_tags(GUID=file.guid)}{_branches()}'
        f"{read}{_runs(dict.fromkeys(file.lumis))}</InputFile>\n"
    )


def _output_file(file: WrittenFile, inputs: tuple[InputRead, ...]) -> str:
    output = file.output
    identity = _tags(LFN=output.lfn, PFN=output.file_name, Catalog="", ModuleLabel=output.label)
    written = _tags(OutputModuleClass=output.class_name, TotalEvents=sum(file.counts.values()), DataType="MC")
    branches = _tags(BranchHash=uuid.uuid5(uuid.NAMESPACE_OID, output.label).hex)
    parents = "".join(f"<Input>\n{_tags(LFN=one.lfn, PFN=one.pfn, FastCopying=0)}</Input>\n" for one in inputs)
    return (
        f'\n<File>\n<State  Value="closed"/>\n{identity}{_tags(GUID=file.guid)}{_branches()}'
        f"{written}{branches}{_runs(file.counts)}<Inputs>\n{parents}</Inputs>\n</File>\n"
    )


def _tags(**texts: str | int) -> str:
    return "".join(f"<{name}>{str(text).translate(_ESCAPED)}</{name}>\n" for name, text in texts.items())


def _branches() -> str:
    return "<Branches>\n" + "".join(f"  <Branch>{name}</Branch>\n" for name in _BRANCHES) + "</Branches>\n"


def _runs(counts: dict[tuple[int, int], int] | dict[tuple[int, int], None]) -> str:
    """Runs with their lumis; only output files carry the number of events of a lumi."""
    lines = ["<Runs>\n"]
    for run in sorted({run for run, _ in counts}):
        lines.append(f'<Run ID="{run}">\n')
        for (number, lumi), events in sorted(counts.items(), key=lambda item: item[0]):
            if number == run:
                lines.append(f'   <LumiSection ID="{lumi}"' + ("" if events is None else f' NEvents="{events}"') + "/>\n")
        lines.append("</Run>\n\n")
    return "".join(lines) + "</Runs>\n"


def render_error_report(error: CmsException) -> str:
    """The report of a run that failed before it had a source."""
    return f"<FrameworkJobReport>\n{_framework_error(error)}</FrameworkJobReport>\n"


def _framework_error(error: CmsException) -> str:
    text = error.message.replace("]]>", "]] >")
    return (
        f'<FrameworkError ExitStatus="{error.code}" Type={_quoted(error.category)} >\n<![CDATA[\n'
        f"An exception of category '{error.category}' occurred while\nException Message:\n{text}\n\n]]>\n</FrameworkError>\n"
    )


def _performance(outcome: Outcome) -> dict[str, dict[str, str]]:
    memory, taken, events = outcome.memory_mb or outcome.plan.profile.memory_mb, outcome.taken, max(1, outcome.events)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    init_cpu = max(0.0, usage.ru_utime + usage.ru_stime - taken.burned_seconds)
    return {
        "ApplicationMemory": {"PeakValueRss": f"{memory:g}", "PeakValueVsize": f"{memory * 1.4:g}"},
        "Timing": {
            "AvgEventTime": f"{taken.wall_seconds / events:g}",
            "EventThroughput": f"{outcome.events / taken.wall_seconds if taken.wall_seconds > 0 else 0:g}",
            "NumberOfStreams": str(outcome.plan.streams or outcome.plan.threads),
            "NumberOfThreads": str(outcome.plan.threads),
            "TotalInitCPU": f"{init_cpu:g}",
            "TotalInitTime": f"{outcome.init_seconds:g}",
            "TotalJobCPU": f"{init_cpu + taken.cpu_seconds:g}",
            "TotalJobTime": f"{outcome.init_seconds + taken.wall_seconds:g}",
            "TotalLoopCPU": f"{taken.cpu_seconds:g}",
            "TotalLoopTime": f"{taken.wall_seconds:g}",
        },
        "ProcessingSummary": {"NumberBeginRunCalls": "1", "NumberEvents": str(outcome.events)},
    }


def _summary(name: str, metrics: dict[str, str]) -> str:
    lines = "".join(f'    <Metric Name="{key}" Value="{value}"/>\n' for key, value in metrics.items())
    return f'<PerformanceReport>\n  <PerformanceSummary Metric="{name}">\n{lines}  </PerformanceSummary>\n</PerformanceReport>\n'


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPED)}"'


def write_report(path: Path, text: str) -> None:
    """Write the report; cmsRun itself writes it as it goes, so nothing is atomic here."""
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
