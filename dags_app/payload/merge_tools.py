"""Running the worker node's merge command on one group of files. Owns its command line and the reading of its report.

``WMS2_MERGE_COMMAND`` names the command (default ``hadd``), called as ``<command> -f OUT IN...``. If its program is
``cmsRun`` it is given a merge configuration instead, which is what EDM files need. A merge command may write what it
merged to the file named by ``WMS2_MERGE_REPORT``: ``{"events": N, "lumis": {run: [[lumi, events], ...]}}``; the real hadd
does not, so its result is taken to be the sum of its inputs.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from . import codes, files, fjr, lumis, psets
from .cmssw import run_in_release
from .codes import PayloadError
from .documents import Step
from .merging import Content
from .processes import Finished
from .reading import Value

COMMAND_VARIABLE = "WMS2_MERGE_COMMAND"
REPORT_VARIABLE = "WMS2_MERGE_REPORT"
DEFAULT_COMMAND = "hadd"

_MERGED_MODULE = "Merged"  # of merge_pset.py
_ERROR_LINES = 40


@dataclass(frozen=True)
class MergeRun:
    """How a merge command ended, the file it wrote and what it says that holds (None: it does not say)."""

    finished: Finished
    output: Path
    content: Content | None


def merge_command() -> list[str]:
    """The command of this worker node, as words."""
    words = shlex.split(os.environ.get(COMMAND_VARIABLE) or DEFAULT_COMMAND)
    if not words:
        raise PayloadError(codes.MERGE_FAILED, f"{COMMAND_VARIABLE} is blank")
    return words


def run_merge(step: Step, inputs: list[Path], lfn: str, directory: Path, work: Path) -> MergeRun:
    """Merge ``inputs`` in ``directory`` in the environment of the step that wrote them; PayloadError when it fails."""
    missing = [str(path) for path in inputs if not path.is_file()]
    if missing:
        raise PayloadError(codes.FILE_OPEN_FAILED, f"{len(missing)} of {len(inputs)} unmerged files are not there: {missing[0]}")
    command = merge_command()
    if Path(command[0]).name == "cmsRun":
        return _by_cmsrun(command, step, inputs, lfn, directory, work)
    return _by_hadd(command, step, inputs, directory, work)


def _by_hadd(command: list[str], step: Step, inputs: list[Path], directory: Path, work: Path) -> MergeRun:
    output, report = directory / "merged.root", directory / "merge_report.json"
    words = [*command, "-f", str(output), *map(str, inputs)]
    finished = run_in_release(words, step.cmssw_version, step.scram_arch, directory, work, {REPORT_VARIABLE: str(report)})
    if finished.exit_code != 0 or not output.is_file():
        raise _failed(command[0], finished, directory)
    return MergeRun(finished, output, _content(report))


def _content(report: Path) -> Content | None:
    if not report.is_file():
        return None
    document = Value(json.loads(report.read_text(encoding="utf-8")), report.name)
    return Content(document["events"].integer(), lumis.counts_from_json(document["lumis"]))


def _by_cmsrun(command: list[str], step: Step, inputs: list[Path], lfn: str, directory: Path, work: Path) -> MergeRun:
    output = directory / "merged.root"
    names = {"inputs": [f"file:{path}" for path in inputs], "output": output.name, "lfn": lfn}
    (directory / "merge.json").write_text(json.dumps(names, indent=1), encoding="utf-8")
    psets.copy_program("merge_pset.py", directory / psets.CONFIGURATION)
    words = [*command, "-j", psets.FRAMEWORK_REPORT, psets.CONFIGURATION]
    finished = run_in_release(words, step.cmssw_version, step.scram_arch, directory, work, {})
    report = fjr.read_framework_report(directory / psets.FRAMEWORK_REPORT)
    written = report.output(_MERGED_MODULE)
    if finished.exit_code != 0 or report.errors or not report.complete or written is None or not output.is_file():
        raise _failed(command[0], finished, directory)
    return MergeRun(finished, output, Content(written.events, written.lumis))


def _failed(program: str, finished: Finished, directory: Path) -> PayloadError:
    name = Path(program).name
    tail = files.tail_text(directory / f"{name}.stderr", _ERROR_LINES)
    return PayloadError(codes.MERGE_FAILED, f"{program} ended with {finished.exit_code}\n{tail}")
