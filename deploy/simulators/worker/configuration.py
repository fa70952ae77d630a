"""From a configuration file to what the simulated cmsRun is to do. Owns which parameters of a process count."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CONFIG_NOT_FOUND, CONFIG_UNREADABLE, GENERATION_FAILED, CmsException, misconfigured
from .failures import Failure, planned_failure
from .profile import Profile, read_profile

#: What a configuration, which is a program, may raise.
_PYTHON_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip
_FWCORE = Path(__file__).parent / "fwcore"

MIXING_MODULES = {"MixingModule", "DataMixingModule", "PreMixingModule"}
GENERATING_SOURCES = {"EmptySource", "LHESource", "MCFileSource", "ExternalLHESource"}
FILE_SOURCES = {"PoolSource", "NanoAODSource", "DQMRootSource"}
#: Sources that can compare a file's name with its GUID, and some releases of before.
_COMPARED = {"PoolSource", "EmbeddedRootSource", "DQMRootSource"}
_WITHOUT_GUID = {"CMSSW_7_1_46", "CMSSW_9_3_16", "CMSSW_10_2_19", "CMSSW_10_5_1", "CMSSW_10_6_7"}


@dataclass(frozen=True, slots=True)
class Source:
    """``process.source``: numbers of a generating source, files and selection of a reading one."""

    type_name: str
    first_run: int
    first_lumi: int
    first_event: int
    events_per_lumi: int  # 0: all events in one lumi
    file_names: tuple[str, ...]
    secondary_files: tuple[str, ...]
    skip_bad_files: bool
    skip_events: int
    lumis: tuple[tuple[int, int, int, int], ...]  # first run, first lumi, last run, last lumi; none: all
    enforces_guid: bool
    accumulates: bool = False  # DQM's histograms of lumis and runs become the whole job's, unless asked for as they are

    @property
    def reads_files(self) -> bool:
        """Whether events come from files."""
        return self.type_name in FILE_SOURCES

    @property
    def without_events(self) -> bool:
        """Whether it reads files by run and lumi only: DQM's format holds no events."""
        return self.type_name == "DQMRootSource"


@dataclass(frozen=True, slots=True)
class Mixing:
    """The secondary source of a mixing module: files of pileup events."""

    label: str
    file_names: tuple[str, ...]
    enforces_guid: bool


@dataclass(frozen=True, slots=True)
class Output:
    """An output module."""

    label: str
    class_name: str
    file_name: str
    lfn: str


@dataclass(frozen=True, slots=True)
class DqmSaver:
    """``process.dqmSaver``: a harvesting saves a file for each run, or one for all under a number of its own."""

    workflow: str
    run: int  # 0: each run's own

    def file_name(self, run: int) -> str:
        """Of what is saved of a run."""
        return f"DQM_V0001_R{run:09d}{self.workflow.replace('/', '__')}.root"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the run needs."""

    process_name: str
    source: Source
    max_events: int  # -1: all
    threads: int
    streams: int
    outputs: tuple[Output, ...]
    mixing: tuple[Mixing, ...]
    seed: int
    profile: Profile
    failure: Failure | None
    dqm_saver: DqmSaver | None = None


def load_plan(path: Path, arguments: list[str]) -> Plan:
    """Execute a configuration and read its process; CmsException with cmsRun's code when that fails.

    Any error of the configuration's own Python is an unreadable configuration, as for cmsRun; its traceback is kept.
    """
    if not path.is_file():
        raise CmsException(CONFIG_NOT_FOUND, "ConfigFileNotFound", f"the configuration {path} does not exist")
    sys.path.insert(0, str(_FWCORE))
    sys.argv = ["cmsRun", *arguments]
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), names)  # noqa: S102  (a configuration is a Python program)
    except _PYTHON_ERRORS as error:
        raise CmsException(
            CONFIG_UNREADABLE,
            "ConfigFileReadError",
            f"Processing the python configuration file named {path}\n{traceback.format_exc()}",
        ) from error
    process = names.get("process")
    if process is None or getattr(process, "source", None) is None:
        raise misconfigured(f"{path} defines no process, or a process without a source")
    return _plan(process)


def _check_generators(process: Any) -> None:
    """Programs that make all events at once, for one lumi after the other, have to make as many as the job has."""
    wanted = _value(process.maxEvents, "input", -1)
    for label, module in process.producers_().items():
        made = _value(module, "nEvents", wanted)
        if process.source.type_() in GENERATING_SOURCES and made != wanted:
            text = f"{module.type_()} {label} makes {made} events, the event loop has {wanted}"
            raise CmsException(GENERATION_FAILED, "EventGenerationFailure", text)


def _plan(process: Any) -> Plan:
    _check_generators(process)
    outputs = tuple(
        Output(label, module.type_(), _value(module, "fileName", f"{label}.root"), _value(module, "logicalFileName", ""))
        for label, module in process.outputModules_().items()
    )
    return Plan(
        process_name=process.name_(),
        source=_source(process.source),
        max_events=_value(process.maxEvents, "input", -1),
        threads=_value(process.options, "numberOfThreads", 1),
        streams=_value(process.options, "numberOfStreams", 0),
        outputs=outputs,
        mixing=tuple(_mixing(process)),
        seed=_seed(process),
        profile=read_profile(process),
        failure=planned_failure(process),
        dqm_saver=_dqm_saver(process),
    )


def _dqm_saver(process: Any) -> DqmSaver | None:
    saver = getattr(process, "dqmSaver", None)
    if saver is None:
        return None
    workflow = _value(saver, "workflow", "")
    if workflow.count("/") != 3:
        raise misconfigured(f"dqmSaver.workflow {workflow!r} is not like /Primary/Processed/TIER")
    return DqmSaver(workflow, max(0, _value(saver, "forceRunNumber", -1)))


def _source(source: Any) -> Source:
    type_name = source.type_()
    if type_name not in GENERATING_SOURCES | FILE_SOURCES:
        known = sorted(GENERATING_SOURCES | FILE_SOURCES)
        raise misconfigured(f"source {type_name} is not simulated; known: {known}")
    return Source(
        type_name=type_name,
        first_run=_value(source, "firstRun", 1),
        first_lumi=_value(source, "firstLuminosityBlock", 1),
        first_event=_value(source, "firstEvent", 1),
        events_per_lumi=_value(source, "numberEventsInLuminosityBlock", 0),
        file_names=tuple(_value(source, "fileNames", ())),
        secondary_files=tuple(_value(source, "secondaryFileNames", ())),
        skip_bad_files=_value(source, "skipBadFiles", False),
        skip_events=_value(source, "skipEvents", 0),
        lumis=tuple(_range(text) for text in _value(source, "lumisToProcess", ())),
        enforces_guid=_enforces_guid(source),
        accumulates=type_name == "DQMRootSource" and _value(source, "reScope", "JOB") != "",
    )


def _mixing(process: Any) -> Iterator[Mixing]:
    """Modules that mix pileup from files; one without files ends the run, as in CMSSW."""
    for label, module in sorted({**process.producers_(), **process.filters_()}.items()):
        name = next((name for name in ("input", "secsource") if module.hasParameter(name)), None)
        if module.type_() not in MIXING_MODULES or name is None:
            continue
        source = module.getParameter(name)
        files = tuple(_value(source, "fileNames", ()))
        if not files:
            raise misconfigured(f"{label}: no input files specified for secondary input source")
        yield Mixing(label, files, _enforces_guid(source))


def _enforces_guid(source: Any) -> bool:
    """Whether names of input files are compared with the GUIDs inside; a source without that parameter refuses it."""
    if not source.hasParameter("enforceGUIDInFileName"):
        return False
    if source.type_() not in _COMPARED or os.environ.get("CMSSW_VERSION") in _WITHOUT_GUID:
        raise misconfigured(f"Illegal parameter found in configuration: enforceGUIDInFileName of {source.type_()}")
    return bool(source.getParameter("enforceGUIDInFileName").value())


def _range(text: str) -> tuple[int, int, int, int]:
    """``1:1-1:8`` or ``1:5``; the end may be ``MAX`` or ``min``/``max`` in CMSSW, plain numbers are enough here."""
    try:
        first, _, last = text.partition("-")
        (run, lumi), (last_run, last_lumi) = first.split(":"), (last or first).split(":")
        return int(run), int(lumi), int(last_run), int(last_lumi)
    except ValueError:
        raise misconfigured(f"lumisToProcess: {text!r} is not run:lumi-run:lumi") from None


def _value(block: Any, name: str, default: Any) -> Any:
    return block.getParameter(name).value() if block.hasParameter(name) else default


def _seed(process: Any) -> int:
    """The first seed of the process: simulated events depend on it alone."""
    service = getattr(process, "RandomNumberGeneratorService", None)
    for label in service.parameterNames_() if service is not None else ():
        engine = getattr(service, label)
        if hasattr(engine, "hasParameter") and engine.hasParameter("initialSeed"):
            return int(engine.initialSeed.value())
    return 1
