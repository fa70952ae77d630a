"""Merging one group of files with the tool of their format. Owns the tools' command lines and the reading of what they wrote.

EDM files, NanoAOD in EDM files and DQMIO are merged by cmsRun, whose framework job report says what the merged file holds. Plain
trees are merged by ``WMS2_MERGE_COMMAND`` (default ``hadd``), called as ``<command> -f OUT IN...``, and the merged file is read
with the release's ROOT; a command that writes ``{"events": N, "lumis": {run: [[lumi, events], ...]}}`` to the file that
``WMS2_MERGE_REPORT`` names saves that. What a merged file holds is never taken from its inputs.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import NamedTuple

from ..contract import codes, files, lumis, names
from ..contract.codes import PayloadError
from ..contract.documents import Step
from ..contract.reading import Value
from ..run import fjr, psets
from ..run.cmssw import run_in_release
from ..run.processes import Finished
from ..run.shares import Held
from ..run.steps import exit_code_of, explain

COMMAND_VARIABLE = "WMS2_MERGE_COMMAND"
REPORT_VARIABLE = "WMS2_MERGE_REPORT"
DEFAULT_COMMAND = "hadd"

#: What each tool writes.
MERGED_FILE = "merged.root"
_MERGED_MODULE = "Merged"  # of merge_pset.py
_ERROR_LINES = 40
_READER = "plain_content.py"
#: The Python of a release that has ROOT: python3, or python in older ones. CMS's containers put a command in single quotes.
_WITH_ROOT = 'python3 -c "import ROOT" 2>/dev/null && exec python3 "$0" "$@"; exec python "$0" "$@"'


class MergeTask(NamedTuple):
    """One merge: ``inputs`` of one kind become one file, in the environment of the step that wrote them.

    ``directory`` is its own; ``work`` is the job's.
    """

    kind: str
    step: Step
    inputs: list[Path]
    directory: Path
    work: Path

    def run(self, command: list[str], variables: dict[str, str]) -> Finished:
        """Run a program of the release in the task's directory."""
        step = self.step
        return run_in_release(command, step.cmssw_version, step.scram_arch, [self.directory], self.work, variables)[0]


class MergeRun(NamedTuple):
    """How a merge ended, the file it wrote, what that holds, and the GUID of an EDM file."""

    finished: Finished
    output: Path
    content: Held
    guid: str | None = None


def by_hadd(task: MergeTask) -> MergeRun:
    """Merge plain trees; PayloadError when it fails or what was merged is not known."""
    command = shlex.split(os.environ.get(COMMAND_VARIABLE) or DEFAULT_COMMAND)
    if not command:
        raise PayloadError(codes.MERGE_FAILED, f"{COMMAND_VARIABLE} is blank")
    output, report = task.directory / MERGED_FILE, task.directory / "merge_report.json"
    finished = task.run([*command, "-f", str(output), *map(str, task.inputs)], {REPORT_VARIABLE: str(report)})
    if finished.exit_code != 0 or not output.is_file():
        raise _failed(command[0], finished, task.directory)
    if not report.is_file():
        psets.copy_program(_READER, task.directory / _READER)
        read = task.run(["/bin/sh", "-c", _WITH_ROOT, _READER, str(output), str(report)], {})
        if read.exit_code != 0 or not report.is_file():
            raise _failed("sh", read, task.directory)
    document = Value(json.loads(report.read_text(encoding="utf-8")), report.name)
    return MergeRun(finished, output, Held(document["events"].integer(), lumis.counts_from_json(document["lumis"])))


def by_cmsrun(task: MergeTask) -> MergeRun:
    """Merge EDM files, NanoAOD and DQMIO; PayloadError when it fails or what was merged is not known."""
    output = task.directory / MERGED_FILE
    inputs = [f"file:{path}" for path in task.inputs]
    compared = names.are_compared(inputs, task.step.cmssw_version)
    document = {"kind": task.kind, "inputs": inputs, "output": output.name, "compare_guids": compared}
    (task.directory / "merge.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    psets.copy_program("merge_pset.py", task.directory / psets.CONFIGURATION)
    finished = task.run(["cmsRun", "-j", psets.FRAMEWORK_REPORT, psets.CONFIGURATION], {})
    report = fjr.read_framework_report(task.directory / psets.FRAMEWORK_REPORT)
    written, code = report.output(_MERGED_MODULE), exit_code_of(finished, report)
    if code != codes.SUCCESS or written is None or not output.is_file():
        raise PayloadError(code or codes.MERGE_FAILED, f"the merge failed: {explain(task.directory, finished, report)}")
    if written.guid is not None and not names.is_guid(written.guid):
        raise PayloadError(codes.OUTPUT_NOT_REPORTED, f"the merge's report has no GUID of its file, but {written.guid!r}")
    if report.skipped_files:
        raise PayloadError(codes.INPUT_SKIPPED, f"the merge skipped {len(report.skipped_files)} files: {report.skipped_files[0]}")
    return MergeRun(finished, output, Held(written.events, written.lumis), written.guid)


def _failed(program: str, finished: Finished, directory: Path) -> PayloadError:
    """Of a program whose statuses mean nothing: only that a signal ended it, or that it went over a bound of the job."""
    if finished.over is not None:
        return finished.over
    tail = files.tail_text(directory / f"{Path(program).name}.stderr", _ERROR_LINES)
    code = finished.exit_code if finished.exit_code > codes.SIGNAL_BASE else codes.MERGE_FAILED
    return PayloadError(code, f"{program} ended with {finished.exit_code}\n{tail}")
