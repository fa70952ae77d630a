"""Applies ``tweak.json`` to a CMSSW configuration. Runs inside cmsRun, so it must also be Python 2.7.

Copied beside each step's ``PSet.py``. Owns how a job's numbers become parameters of the process; every parameter keeps
CMSSW's own type. A process that cannot do what the job asks is an error here, never a job that runs something else.
"""

# mypy: ignore-errors
import hashlib
import io
import json

import FWCore.ParameterSet.Config as cms

_MAX_UINT32 = 4294967295
_MAX_SEED = 900000000  # CLHEP engines take seeds up to 900,000,000
#: Types of the modules that mix simulated pileup, and of the one that overlays data.
_MIXING = {"mc": ("MixingModule", "DataMixingModule", "PreMixingModule"), "data": ("DataMixingModule",)}
_FILE_SOURCES = ("PoolSource", "NanoAODSource", "DQMRootSource")


def load_process(config, tweak_file):
    """The process of a configuration file with the tweak applied."""
    with io.open(config, encoding="utf-8") as stream:
        source = stream.read()
    names = {"__name__": "step_configuration", "__file__": config}
    exec(compile(source.encode("utf-8"), config, "exec"), names)
    if "process" not in names:
        raise RuntimeError("%s defines no process" % config)
    with io.open(tweak_file, encoding="utf-8") as stream:
        tweak = json.load(stream)
    process = names["process"]
    _set_source(process, tweak)
    _set_outputs(process, tweak["outputs"])
    for pileup in tweak.get("pileup") or ():
        _set_pileup(process, pileup)
    _set_options(process, tweak)
    _set_seeds(process, tweak["seed"])
    if tweak.get("dqm_saver"):
        _set_dqm_saver(process, tweak["dqm_saver"])
    _add_reports(process, tweak.get("status_tag"))
    return process


def _set_source(process, tweak):
    source = process.source
    reads_files = source.type_() in _FILE_SOURCES
    if tweak["generate"] is not None and reads_files:
        raise RuntimeError("the job generates events, but the source is %s" % source.type_())
    if tweak["files"] is not None and not reads_files:
        raise RuntimeError("the job reads files, but the source is %s" % source.type_())
    process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(tweak["max_events"]))
    if tweak["generate"] is not None:
        _set_generation(process, tweak["generate"], tweak["max_events"])
        return
    source.fileNames = cms.untracked.vstring([str(name) for name in tweak["files"]])
    if tweak["secondary_files"]:
        source.secondaryFileNames = cms.untracked.vstring([str(name) for name in tweak["secondary_files"]])
    if hasattr(source, "skipBadFiles"):
        source.skipBadFiles = cms.untracked.bool(False)
    _compare_guids(source, tweak["compare_guids"])
    if tweak["skip_events"]:
        source.skipEvents = cms.untracked.uint32(tweak["skip_events"])
    if tweak["lumis"]:
        source.lumisToProcess = cms.untracked.VLuminosityBlockRange([str(name) for name in tweak["lumis"]])


def _compare_guids(source, compared):
    """Whether input files have to be named by the GUID inside them; older releases do not know that parameter."""
    if source.type_() in ("PoolSource", "EmbeddedRootSource") and (compared or hasattr(source, "enforceGUIDInFileName")):
        source.enforceGUIDInFileName = cms.untracked.bool(compared)


def _set_generation(process, generate, events):
    source = process.source
    source.firstRun = cms.untracked.uint32(generate["run"])
    source.firstLuminosityBlock = cms.untracked.uint32(generate["first_lumi"])
    source.numberEventsInLuminosityBlock = cms.untracked.uint32(generate["events_per_lumi"])
    for producer in process.producers_().values():
        if hasattr(producer, "nEvents"):
            producer.nEvents = events
    if source.type_() == "LHESource":  # its events are those of the LHE files, in order: event number n is the n-th
        skipped = generate["first_event"] - 1
        if skipped > _MAX_UINT32:
            raise RuntimeError("LHESource skips at most %d events, the job begins after %d" % (_MAX_UINT32, skipped))
        source.skipEvents = cms.untracked.uint32(skipped)
        return
    wide = generate["first_event"] + events - 1 > _MAX_UINT32  # CMSSW takes either width, older releases only 32 bits
    source.firstEvent = (cms.untracked.uint64 if wide else cms.untracked.uint32)(generate["first_event"])


def _set_outputs(process, outputs):
    modules = process.outputModules_()
    for label in outputs:
        if label not in modules:
            raise RuntimeError("the configuration has no output module %s; it has %s" % (label, sorted(modules)))
    for label in modules:
        module = getattr(process, label)
        module.fileName = cms.untracked.string(str(label) + ".root")
        module.logicalFileName = cms.untracked.string("")


def _set_pileup(process, pileup):
    """File names of the mixing modules of one kind; their other parameters are the configuration's."""
    types = _MIXING[pileup["kind"]]
    modules = list(process.producers_().items()) + list(process.filters_().items())
    sources = [_pileup_source(module) for label, module in sorted(modules) if module.type_() in types]
    sources = [source for source in sources if source is not None]
    if not sources:
        raise RuntimeError("the step mixes %s pileup, but no module is a %s with input" % (pileup["kind"], " or ".join(types)))
    for source in sources:
        source.fileNames = cms.untracked.vstring([str(name) for name in pileup["files"]])
        _compare_guids(source, pileup["compare_guids"])
        if pileup["sequential"]:
            source.sequential = cms.untracked.bool(True)
            source.skipEvents = cms.untracked.uint32(pileup["skip_events"])


def _pileup_source(module):
    """The secondary source inside a mixing module; releases differ in what they call it."""
    for name in ("input", "secsource"):
        if hasattr(module, name):
            return getattr(module, name)
    return None


def _set_options(process, tweak):
    if tweak["global_tag"] and hasattr(process, "GlobalTag"):
        process.GlobalTag.globaltag = cms.string(str(tweak["global_tag"]))
    if not hasattr(process, "options"):
        process.options = cms.untracked.PSet()
    process.options.numberOfThreads = cms.untracked.uint32(tweak["threads"])
    process.options.numberOfStreams = cms.untracked.uint32(tweak["streams"])


def _set_seeds(process, text):
    """Seeds that depend on what the job is, so that a repeated attempt makes the same events."""
    service = getattr(process, "RandomNumberGeneratorService", None)
    for label in service.parameterNames_() if service is not None else ():
        engine = getattr(service, label)
        if hasattr(engine, "initialSeed"):
            engine.initialSeed = cms.untracked.uint32(_seed(text, label))
        elif hasattr(engine, "initialSeedSet"):
            count = len(engine.initialSeedSet)
            engine.initialSeedSet = cms.untracked.vuint32([_seed(text, "%s/%d" % (label, number)) for number in range(count)])


def _seed(text, label):
    digest = hashlib.sha256(("%s/%s" % (text, label)).encode("utf-8")).hexdigest()
    return int(digest[:16], 16) % _MAX_SEED + 1


def _set_dqm_saver(process, saver):
    """Under which names a harvesting keeps what it makes; the rest is the configuration's."""
    if not hasattr(process, "dqmSaver"):
        raise RuntimeError("the configuration harvests nothing: it has no dqmSaver")
    process.dqmSaver.workflow = cms.untracked.string(str(saver["workflow"]))
    process.dqmSaver.runIsComplete = cms.untracked.bool(True)
    if saver["run"]:
        process.dqmSaver.forceRunNumber = cms.untracked.int32(saver["run"])


def _add_reports(process, status_tag):
    """Services that put memory, CPU and time into the framework job report; and one that reports events and their rate to
    HTCondor, in attributes with this tag, where it finds condor_chirp."""
    if status_tag and not hasattr(process, "CondorStatusService"):
        process.add_(cms.Service("CondorStatusService", tag=cms.untracked.string(str(status_tag))))
    if not hasattr(process, "SimpleMemoryCheck"):
        process.add_(cms.Service("SimpleMemoryCheck", jobReportOutputOnly=cms.untracked.bool(True)))
    if not hasattr(process, "CPU"):
        process.add_(cms.Service("CPU"))
    if not hasattr(process, "Timing"):
        process.add_(cms.Service("Timing", summaryOnly=cms.untracked.bool(True)))
