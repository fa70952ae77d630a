"""Preparing a step's directory: its configuration and the tweak with the job's numbers. Owns ``tweak.json``.

What the tweak means is in ``cmssw_tweak.py``, which runs inside cmsRun. ``generate`` and ``files`` exclude each other.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..contract import codes, lumis, names
from ..contract.codes import PayloadError
from ..contract.convert import to_json
from ..contract.documents import Step, UnitJob
from .division import Work
from .gathering import GatheredFile
from .pileup import Mixing

CONFIGURATION = "PSet.py"
FRAMEWORK_REPORT = "FrameworkJobReport.xml"


class Settings(NamedTuple):
    """How a cmsRun runs beside what it does."""

    threads: int
    streams: int
    seed: str
    mixing: tuple[Mixing, ...] = ()


def write_step(directory: Path, sandbox: Path, step: Step, work: Work, settings: Settings) -> None:
    """Fill ``directory`` for one cmsRun of ``step``.

    PayloadError when the sandbox lacks the step's configuration.
    """
    original = sandbox / step.pset
    if not original.is_file():
        raise PayloadError(codes.CONFIG_NOT_FOUND, f"step {step.name}: {step.pset} is not in the sandbox")
    tweak = _chained_tweak(work.sources) if work.sources else _input_tweak(work.unit_job)
    tweak.update(
        {
            "outputs": step.output_modules,
            "global_tag": step.global_tag,
            "threads": settings.threads,
            "streams": settings.streams,
            "seed": settings.seed,
            "pileup": [
                {**to_json(each), "compare_guids": names.are_compared(each.files, step.cmssw_version)} for each in settings.mixing
            ],
            "compare_guids": names.are_compared((*(tweak["files"] or ()), *tweak["secondary_files"]), step.cmssw_version),
            "status_tag": f"_cmsRun{step.number}_" if names.tells_progress(step.cmssw_version) else "",
        }
    )
    write_configuration(directory, original.read_bytes(), tweak)


def write_configuration(directory: Path, original: bytes, tweak: Mapping[str, Any]) -> None:
    """What cmsRun is given: a configuration, and what ``cmssw_tweak.py`` changes in it."""
    (directory / "original.py").write_bytes(original)
    copy_program("cmssw_tweak.py", directory / "cmssw_tweak.py")
    copy_program("step_pset.py", directory / CONFIGURATION)
    (directory / "tweak.json").write_text(json.dumps(tweak, indent=1), encoding="utf-8")


def copy_program(name: str, target: Path) -> None:
    """Copy one of ``programs/``: they run inside cmsRun or bash, not as part of this package, which may be a zipapp."""
    data = pkgutil.get_data(__package__.rpartition(".")[0], f"programs/{name}")
    if data is None:
        raise PayloadError(codes.INVALID_DOCUMENT, f"the payload lacks {name}: it was not built by dags_app.payload.build")
    target.write_bytes(data)


def _chained_tweak(sources: Sequence[GatheredFile]) -> dict[str, Any]:
    """Files of an earlier step: whole, one stretch of the events of all of them, or some of their lumis."""
    files = [source.url for source in sources]
    parts = [source.part for source in sources if source.part is not None]
    if not parts:
        return tweak_with(files=files)
    if any(part.first_event is not None for part in parts):
        first = next(source for source in sources if source.events)  # those without events come before
        events = sum(source.events if source.part is None else source.part.events or 0 for source in sources)
        last, end = sources[-1], sources[-1].part
        if end is None or (end.first_event or 0) + (end.events or 0) >= last.events:
            events = -1  # else lumis behind the last event would be lost
        return tweak_with(files=files, skip_events=first.part.first_event or 0 if first.part else 0, max_events=events)
    wanted = {lumi for each in sources for lumi in (lumis.lumi_set(each.lumis) if each.part is None else each.part.lumis or ())}
    ranges = lumis.compact(wanted)
    return tweak_with(files=files, lumis=[f"{run}:{a}-{run}:{b}" for run, many in ranges.items() for a, b in many])


def _input_tweak(job: UnitJob) -> dict[str, Any]:
    """The numbers of the first step: what to generate, or which files, events and lumis to read."""
    if job.generate is not None:
        return tweak_with(
            generate={name: getattr(job.generate, name) for name in ("run", "first_event", "first_lumi", "events_per_lumi")},
            max_events=job.generate.events,
        )
    first = job.files[0].first_event or 0
    last = job.files[0].last_event
    return tweak_with(
        files=[file.lfn for file in job.files],
        secondary_files=sorted({parent for file in job.files for parent in file.parents}),
        skip_events=first,
        # cmsRun stops at its last event: lumis behind that of the file are kept only where no limit is set
        max_events=-1 if last is None or last == job.files[0].events - 1 else last - first + 1,
        lumis=[f"{run}:{a}-{run}:{b}" for run, a, b in job.mask or ()],
    )


def tweak_with(**numbers: Any) -> dict[str, Any]:
    """Numbers of the source; those that are not given leave it as a whole file is read."""
    empty: dict[str, Any] = {
        "generate": None,
        "files": None,
        "secondary_files": [],
        "skip_events": 0,
        "max_events": -1,
        "lumis": [],
        "compare_guids": False,
    }
    return {**empty, **numbers}
