"""Running the steps of a job, one after the other, each as one cmsRun or as several side by side. Owns the order of checks
after each, and the step's exit code.

After a step, in this order: did every cmsRun end well, is its report whole, was a file skipped, was exactly its work done, are
its outputs there; and last, did all of them together do the step's work. The first that fails ends the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..contract import codes, files, names
from ..contract.codes import PayloadError
from ..contract.documents import JobDocument, Step, UnitDocument, UnitJob
from ..contract.reports import Processed, StepRecord
from ..contract.step_profile import StepProfile, StepRun
from . import checks, fjr, psets
from .attempt import AttemptReport
from .cmssw import FRONTIER_ID, run_in_release
from .division import Division, Work, divide
from .fjr import FrameworkReport, OutputFileReport
from .gathering import GatheredFile
from .pileup import mixing_of
from .processes import Finished
from .slot import Granted

_ERROR_LINES = 40

#: cmsRun opens its report only after it has read the configuration: without a report these statuses are its own codes.
_UNREPORTED = {code & 0xFF: code for code in (codes.CONFIG_NOT_FOUND, codes.CONFIG_UNREADABLE)}


class Process(NamedTuple):
    """A cmsRun that has ended: what it was to do, where it ran, and its report."""

    work: Work
    directory: Path
    finished: Finished
    report: FrameworkReport

    def output_path(self, module: str) -> Path:
        """The file an output module wrote."""
        written = self.report.output(module)
        return self.directory / (written.pfn.rpartition("file:")[2] if written and written.pfn else f"{module}.root")

    def output(self, module: str, step: str) -> tuple[OutputFileReport, Path]:
        """What an output module wrote, and where; PayloadError when the report has no such file, or does not identify it."""
        written = self.report.output(module)
        if written is None:
            text = f"step {step}: the framework report has no file of output module {module}"
            raise PayloadError(codes.OUTPUT_NOT_REPORTED, text)
        if written.guid is not None and not names.is_guid(written.guid):
            text = f"step {step}: the framework report has no GUID of the file of {module}, but {written.guid!r}"
            raise PayloadError(codes.OUTPUT_NOT_REPORTED, text)
        return written, self.output_path(module)


class DoneStep(NamedTuple):
    """A step that ended well, by its processes."""

    step: Step
    processes: tuple[Process, ...]

    def as_sources(self, module: str) -> tuple[GatheredFile, ...]:
        """The files of an output module, for a step that reads them."""
        found = [process.output(module, self.step.name) for process in self.processes]
        return tuple(
            GatheredFile("", str(path), f"file:{path.resolve()}", written.events, written.lumis, ()) for written, path in found
        )


class JobContext(NamedTuple):
    """What all steps of one attempt share."""

    job: JobDocument
    unit: UnitDocument
    unit_job: UnitJob
    sandbox: Path
    work: Path
    attempt: AttemptReport
    gathered: tuple[GatheredFile, ...]  # what a job of a later task reads
    profile: StepProfile
    granted: Granted


def run_chain(context: JobContext) -> dict[str, DoneStep]:
    """Run every step of the job's task; done steps by name.

    PayloadError with the failing step's code, the attempt's record filled in.
    """
    done: dict[str, DoneStep] = {}
    for step in context.job.steps_of(context.unit_job.task):
        context.attempt.exit_step = step.name
        upstream = done.get(step.input_step) if step.input_step is not None else None
        done[step.name] = _run_step(context, step, upstream)
    context.attempt.exit_step = None
    return done


def _run_step(context: JobContext, step: Step, upstream: DoneStep | None) -> DoneStep:
    sources = context.gathered if upstream is None else upstream.as_sources(step.input_module or "")
    work = Work(context.unit_job, sources)
    run = (context.profile.steps.get(step.name) or StepRun(1, step.threads)).at(context.attempt.attempt)
    division = divide(context.job, step, work, run, context.granted)
    processes = _run_processes(context, step, run.threads, division)
    ended = [(exit_code_of(each.finished, each.report), each) for each in processes if not each.finished.stopped]
    failed = [(code, each) for code, each in ended if code != codes.SUCCESS]
    code, process = min(failed, key=lambda pair: pair[1].finished.exit_code == 0, default=(codes.SUCCESS, processes[0]))
    context.attempt.steps.append(_record(step, run.threads, processes, code, division.undivided))
    if upstream is None:
        context.attempt.processed = _processed(processes, work)
    if code != codes.SUCCESS:
        raise PayloadError(code, f"step {step.name}: {explain(process.directory, process.finished, process.report)}")
    for each in processes:
        _check(context, step, each)
    if len(processes) > 1:
        _check_work(work, _processed(processes, work), step)
    return DoneStep(step, processes)


def _run_processes(context: JobContext, step: Step, threads: int, division: Division) -> tuple[Process, ...]:
    """Run the parts of a step's work side by side, each in a directory of its own."""
    attempt, count = context.attempt, len(division.works)
    directories = []
    for number, work in enumerate(division.works):
        directory = attempt.steps_directory / f"step{step.number}_{step.name}{f'.{number}' if count > 1 else ''}"
        directory.mkdir(parents=True)
        directories.append(directory)
        # what all its random numbers begin with: the same for every attempt
        seed = f"{context.job.workflow_id}/{context.job.round_index}/{context.unit.unit}/{context.unit_job.node}/{step.name}"
        seed += f"/{number}/{count}" if count > 1 else ""
        mixing = mixing_of(attempt.directory, context.job, work.unit_job, step, site=attempt.slot.site, seed=seed)
        streams = step.event_streams if threads == step.threads else min(step.event_streams, threads)
        settings = psets.Settings(threads, streams, seed, mixing)
        psets.write_step(directory, context.sandbox, step, work, settings)
    command = ["cmsRun", "-j", psets.FRAMEWORK_REPORT, psets.CONFIGURATION]
    known = {"NODE": attempt.node, "ATTEMPT": attempt.attempt, "STEP": step.name, "PROCESSES": count}
    variables = {f"WMS2_{name}": str(value) for name, value in known.items()}
    variables[FRONTIER_ID] = f"wms2_{context.job.request_name}"
    finished = run_in_release(command, step.cmssw_version, step.scram_arch, directories, context.work, variables)
    return tuple(
        Process(work, directory, each, fjr.read_framework_report(directory / psets.FRAMEWORK_REPORT))
        for work, directory, each in zip(division.works, directories, finished)
    )


def _processed(processes: Sequence[Process], work: Work) -> Processed:
    """What processes did of some work."""
    reports = [process.report for process in processes]
    if work.sources:
        return checks.read_gathered(reports, work.sources)
    return checks.processed_by(reports, work.unit_job)


def exit_code_of(finished: Finished, report: FrameworkReport) -> int:
    """The code a step ended with: the report's whole code when there is one, else the process's.

    cmsRun's process status is the low byte of its code, so 8001 arrives as 65. A report that names an error counts also
    when the process claims success; a process that ended well without a whole report has no proof of it.
    """
    if finished.over is not None:
        return finished.over.code
    if report.errors and report.errors[0].exit_status != codes.SUCCESS:
        return report.errors[0].exit_status
    if finished.exit_code != 0:
        return finished.exit_code if report.written else _UNREPORTED.get(finished.exit_code, finished.exit_code)
    return codes.SUCCESS if report.complete else codes.NO_FRAMEWORK_REPORT


def _record(step: Step, threads: int, processes: Sequence[Process], code: int, undivided: str) -> StepRecord:
    """Times and memory are cmsRun's own figures where it gave them, else what the payload measured."""
    measured = [_measured(process) for process in processes]
    read = checks.processed_by([process.report for process in processes], processes[0].work.unit_job)
    written: dict[str, int] = {}
    for process in processes:
        for module in (file.module for file in process.report.outputs if process.output_path(file.module).is_file()):
            written[module] = written.get(module, 0) + process.output_path(module).stat().st_size
    return StepRecord(
        number=step.number,
        name=step.name,
        exit_code=code,
        wall_seconds=max(each.wall_seconds for each in measured),
        cpu_seconds=sum(each.cpu_seconds for each in measured),
        threads=threads,
        peak_rss_mb=max(each.peak_rss_mb for each in measured),
        events_read=read.events,
        events_written=sum(max((file.events for file in process.report.outputs), default=0) for process in processes),
        skipped_files=_once(lfn for process in processes for lfn in process.report.skipped_files),
        input_files=_once(file.lfn or file.pfn for process in processes for file in process.report.read_files),
        processes=len(processes),
        slot_rss_mb=sum(each.peak_rss_mb for each in measured),
        bytes_written=written,
        undivided=undivided,
    )


def _measured(process: Process) -> Finished:
    """What one process took. cmsRun counts its time from when it has read its configuration."""
    report, finished = process.report, process.finished
    return finished._replace(
        wall_seconds=_positive(report.metric("Timing", "TotalJobTime")) or finished.wall_seconds,
        cpu_seconds=_positive(report.metric("Timing", "TotalJobCPU")) or finished.cpu_seconds,
        peak_rss_mb=_positive(report.metric("ApplicationMemory", "PeakValueRss")) or finished.peak_rss_mb,
    )


def _positive(metric: float | None) -> float | None:
    return metric if metric is not None and metric > 0 else None


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def explain(directory: Path, finished: Finished, report: FrameworkReport) -> str:
    """Why a cmsRun failed: the bound that it was ended for, the error that its report names, or its last lines."""
    if finished.over is not None:
        return finished.over.message
    if report.errors:
        return f"{report.errors[0].kind}: {report.errors[0].text}"
    tail = files.tail_text(directory / "cmsRun.stderr", _ERROR_LINES)
    return f"cmsRun ended with {finished.exit_code}; {report.problem or 'its report names no error'}\n{tail}"


def _check(context: JobContext, step: Step, process: Process) -> None:
    checks.check_not_skipped(process.report, step.name)
    _check_work(process.work, _processed([process], process.work), step)
    needed = set(context.job.staged_by(step.name))
    needed.update(s.input_module for s in context.job.steps if s.input_step == step.name and s.input_module)
    for module in sorted(needed):
        _, path = process.output(module, step.name)
        if not path.is_file() or path.stat().st_size == 0:
            raise PayloadError(codes.OUTPUT_NOT_FOUND, f"step {step.name}: output {path.name} of {module} is missing or empty")


def _check_work(work: Work, done: Processed, step: Step) -> None:
    if work.sources:
        checks.check_gathered(work.sources, done, step.name)
    else:
        checks.check_first_step(work.unit_job, done, step.name)
