"""Preparing a step's directory: its configuration and the tweak with the job's numbers. Owns ``tweak.json``.

What the tweak means is in ``cmssw_tweak.py``, which runs inside cmsRun. ``generate`` and ``files`` exclude each other.
"""

from __future__ import annotations

import json
import pkgutil
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..contract import codes, lumis
from ..contract.codes import PayloadError
from ..contract.convert import to_json
from ..contract.documents import JobDocument, Step, UnitDocument, UnitJob
from .pileup import Mixing
from .shares import Part

CONFIGURATION = "PSet.py"
FRAMEWORK_REPORT = "FrameworkJobReport.xml"


def write_step(
    directory: Path,
    sandbox: Path,
    job: JobDocument,
    unit: UnitDocument,
    unit_job: UnitJob,
    step: Step,
    sources: Sequence[Path],
    lfns: Mapping[str, str],
    mixing: tuple[Mixing, ...] = (),
    part: Part | None = None,
) -> None:
    """Fill ``directory`` for ``step``; ``sources`` are the files of the step it reads, none for the job's own input, ``lfns``
    those of the outputs that are staged out, by module.

    ``part`` says what of the one source is read, None all of it.

    PayloadError when the sandbox lacks the step's configuration.
    """
    original = sandbox / step.pset
    if not original.is_file():
        raise PayloadError(codes.CONFIG_NOT_FOUND, f"step {step.name}: {step.pset} is not in the sandbox")
    shutil.copyfile(original, directory / "original.py")
    copy_program("cmssw_tweak.py", directory / "cmssw_tweak.py")
    copy_program("step_pset.py", directory / CONFIGURATION)
    tweak = _chained_tweak(sources, part) if sources else _input_tweak(unit_job)
    tweak.update(
        {
            "outputs": dict(lfns),
            "global_tag": step.global_tag,
            "threads": step.threads,
            "streams": step.event_streams,
            "seed": seed_of(job, unit, unit_job, step),
            "pileup": [to_json(each) for each in mixing],
        }
    )
    for module in step.output_modules:
        tweak["outputs"].setdefault(module, "")
    (directory / "tweak.json").write_text(json.dumps(tweak, indent=1), encoding="utf-8")


def seed_of(job: JobDocument, unit: UnitDocument, unit_job: UnitJob, step: Step) -> str:
    """What all random numbers of a step of a job begin with: the same for every attempt."""
    return f"{job.workflow_id}/{job.round_index}/{unit.unit}/{unit_job.node}/{step.name}"


def copy_program(name: str, target: Path) -> None:
    """Copy one of ``programs/``: they run inside cmsRun or bash, not as part of this package, which may be a zipapp."""
    data = pkgutil.get_data(__package__.rpartition(".")[0], f"programs/{name}")
    if data is None:
        raise PayloadError(codes.INVALID_DOCUMENT, f"the payload lacks {name}: it was not built by dags_app.payload.build")
    target.write_bytes(data)


def _chained_tweak(sources: Sequence[Path], part: Part | None) -> dict[str, Any]:
    files = [f"file:{source.resolve()}" for source in sources]
    if part is None:
        return _tweak(files=files)
    if part.first_event is not None:
        return _tweak(files=files, skip_events=part.first_event, max_events=part.events)
    ranges = lumis.compact(part.lumis or ())
    return _tweak(files=files, lumis=[f"{run}:{a}-{run}:{b}" for run, many in ranges.items() for a, b in many])


def _input_tweak(job: UnitJob) -> dict[str, Any]:
    """The numbers of the first step: what to generate, or which files, events and lumis to read."""
    if job.generate is not None:
        return _tweak(
            generate={
                "run": job.generate.run,
                "first_event": job.generate.first_event,
                "first_lumi": job.generate.first_lumi,
                "events_per_lumi": job.generate.events_per_lumi,
            },
            max_events=job.generate.events,
        )
    first = job.files[0].first_event or 0
    last = job.files[0].last_event
    return _tweak(
        files=[file.lfn for file in job.files],
        secondary_files=sorted({parent for file in job.files for parent in file.parents}),
        skip_events=first,
        max_events=-1 if last is None else last - first + 1,
        lumis=[f"{run}:{a}-{run}:{b}" for run, a, b in job.mask or ()],
    )


def _tweak(**numbers: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "generate": None,
        "files": None,
        "secondary_files": [],
        "skip_events": 0,
        "max_events": -1,
        "lumis": [],
    }
    return {**empty, **numbers}
