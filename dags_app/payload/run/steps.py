"""Running the steps of a job, one cmsRun after the other. Owns the order of checks after each, and the step's exit code.

After a step, in this order: did cmsRun end well, is its report whole, was a file skipped, was exactly the work done, are
the outputs there. The first that fails ends the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..contract import codes, files, names
from ..contract.codes import PayloadError
from ..contract.documents import JobDocument, Step, UnitDocument, UnitJob
from ..contract.reports import Processed, StepRecord
from . import checks, fjr, psets
from .attempt import AttemptReport
from .cmssw import run_in_release
from .fjr import FrameworkReport, OutputFileReport
from .gathering import GatheredFile
from .pileup import Mixing, mixing_of
from .processes import Finished

_ERROR_LINES = 40

#: cmsRun opens its report only after it has read the configuration: without a report these statuses are its own codes.
_UNREPORTED = {code & 0xFF: code for code in (codes.CONFIG_NOT_FOUND, codes.CONFIG_UNREADABLE)}


@dataclass(frozen=True)
class DoneStep:
    """A step that ended well: its directory and its report."""

    step: Step
    directory: Path
    report: FrameworkReport

    def output_path(self, module: str) -> Path:
        """The file an output module wrote."""
        written = self.report.output(module)
        return self.directory / (written.pfn.rpartition("file:")[2] if written and written.pfn else f"{module}.root")


@dataclass(frozen=True)
class JobContext:
    """What all steps of one attempt share."""

    job: JobDocument
    unit: UnitDocument
    unit_job: UnitJob
    sandbox: Path
    work: Path
    attempt: AttemptReport
    gathered: tuple[GatheredFile, ...] = ()  # what a job of a later task reads

    def lfns_of(self, step: Step) -> dict[str, str]:
        """LFNs of what a step stages out, by module; of this start of the job only."""
        execution = self.attempt.slot.execution
        return {
            module: names.unmerged_lfn(self.job, self.unit, self.unit_job.node, output, execution)
            for module, output in self.job.staged_by(step.name).items()
        }


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
    directory = context.attempt.steps_directory / f"step{step.number}_{step.name}"
    directory.mkdir(parents=True)
    if upstream is not None:
        sources = [upstream.output_path(step.input_module or "")]
    else:
        sources = [file.path for file in context.gathered]
    part = context.gathered[0].part if upstream is None and context.gathered else None  # only a single file is divided
    lfns, mixing = context.lfns_of(step), _mixing(context, step)
    psets.write_step(directory, context.sandbox, context.job, context.unit, context.unit_job, step, sources, lfns, mixing, part)
    finished = run_in_release(
        ["cmsRun", "-j", psets.FRAMEWORK_REPORT, psets.CONFIGURATION],
        step.cmssw_version,
        step.scram_arch,
        directory,
        context.work,
        {"WMS2_NODE": context.attempt.node, "WMS2_ATTEMPT": str(context.attempt.attempt), "WMS2_STEP": step.name},
    )
    report = fjr.read_framework_report(directory / psets.FRAMEWORK_REPORT)
    code = exit_code_of(finished, report)
    context.attempt.steps.append(_record(step, finished, report, code, directory))
    if upstream is None:
        context.attempt.processed = _processed(context, report)
    if code != codes.SUCCESS:
        raise PayloadError(code, f"step {step.name}: {_explain(finished, report, directory)}")
    _check(context, step, upstream, report, directory)
    return DoneStep(step, directory, report)


def _processed(context: JobContext, report: FrameworkReport) -> Processed:
    if context.gathered:
        return checks.read_gathered(report, context.gathered)
    return checks.with_ranges(checks.processed_by(report), context.unit_job)


def _mixing(context: JobContext, step: Step) -> tuple[Mixing, ...]:
    attempt = context.attempt
    seed = psets.seed_of(context.job, context.unit, context.unit_job, step)
    return mixing_of(attempt.directory, context.job, context.unit_job, step, site=attempt.slot.site, seed=seed)


def exit_code_of(finished: Finished, report: FrameworkReport) -> int:
    """The code a step ended with: the report's whole code when there is one, else the process's.

    cmsRun's process status is the low byte of its code, so 8001 arrives as 65. A report that names an error counts also
    when the process claims success; a process that ended well without a whole report has no proof of it.
    """
    if report.errors and report.errors[0].exit_status != codes.SUCCESS:
        return report.errors[0].exit_status
    if finished.exit_code != 0:
        return finished.exit_code if report.written else _UNREPORTED.get(finished.exit_code, finished.exit_code)
    return codes.SUCCESS if report.complete else codes.NO_FRAMEWORK_REPORT


def _record(step: Step, finished: Finished, report: FrameworkReport, code: int, directory: Path) -> StepRecord:
    """Times and memory are cmsRun's own figures where it gave them, else what the payload measured."""
    done = checks.processed_by(report)
    peak_rss_mb = report.metric("ApplicationMemory", "PeakValueRss") or finished.peak_rss_mb
    paths = {file.module: DoneStep(step, directory, report).output_path(file.module) for file in report.outputs}
    return StepRecord(
        number=step.number,
        name=step.name,
        exit_code=code,
        wall_seconds=report.metric("Timing", "TotalJobTime") or finished.wall_seconds,
        cpu_seconds=report.metric("Timing", "TotalJobCPU") or finished.cpu_seconds,
        threads=step.threads,
        peak_rss_mb=peak_rss_mb,
        slot_rss_mb=peak_rss_mb,
        bytes_written={module: path.stat().st_size for module, path in paths.items() if path.is_file()},
        events_read=done.events,
        events_written=max((file.events for file in report.outputs), default=0),
        skipped_files=report.skipped_files,
        input_files=tuple(file.lfn or file.pfn for file in report.read_files),
    )


def _explain(finished: Finished, report: FrameworkReport, directory: Path) -> str:
    if report.errors:
        return f"{report.errors[0].kind}: {report.errors[0].text}"
    tail = files.tail_text(directory / "cmsRun.stderr", _ERROR_LINES)
    return f"cmsRun ended with {finished.exit_code}; {report.problem or 'its report names no error'}\n{tail}"


def _check(context: JobContext, step: Step, upstream: DoneStep | None, report: FrameworkReport, directory: Path) -> None:
    checks.check_not_skipped(report, step.name)
    done = checks.processed_by(report)
    if upstream is None and context.gathered:
        checks.check_gathered(context.gathered, checks.read_gathered(report, context.gathered), step.name)
    elif upstream is None:
        checks.check_first_step(context.unit_job, done, step.name)
    else:
        checks.check_next_step(_need_output(upstream.report, step.input_module or "", step.name), done, step.name)
    needed = set(context.job.staged_by(step.name))
    needed.update(s.input_module for s in context.job.steps if s.input_step == step.name and s.input_module)
    for module in sorted(needed):
        _need_output(report, module, step.name)
        path = DoneStep(step, directory, report).output_path(module)
        if not path.is_file() or path.stat().st_size == 0:
            raise PayloadError(codes.OUTPUT_NOT_FOUND, f"step {step.name}: output {path.name} of {module} is missing or empty")


def _need_output(report: FrameworkReport, module: str, step: str) -> OutputFileReport:
    written = report.output(module)
    if written is None:
        raise PayloadError(codes.OUTPUT_NOT_REPORTED, f"step {step}: the framework report has no file of output module {module}")
    return written
