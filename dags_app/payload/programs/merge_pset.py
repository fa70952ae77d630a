"""The configuration of a merge by cmsRun: what is in ``merge.json``'s inputs goes into one file, in the format of its kind.

Runs inside cmsRun, so it must also be Python 2.7. The kinds and their modules are those that CMS's own merge jobs use.
"""

# mypy: ignore-errors
import io
import json

import FWCore.ParameterSet.Config as cms

with io.open("merge.json", encoding="utf-8") as stream:
    _merge = json.load(stream)

_names = cms.untracked.vstring([str(name) for name in _merge["inputs"]])
process = cms.Process("MERGE")
process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(-1))
if _merge["kind"] == "dqmio":  # holds monitoring elements by run and lumi, and no events
    process.source = cms.Source("DQMRootSource", fileNames=_names)
    process.add_(cms.Service("DQMStore"))
    process.Merged = cms.OutputModule("DQMRootOutputModule")
else:
    process.source = cms.Source(
        "PoolSource",
        fileNames=_names,
        duplicateCheckMode=cms.untracked.string("noDuplicateCheck"),
        bypassVersionCheck=cms.untracked.bool(True),  # the step before may have run in a newer release
        skipBadFiles=cms.untracked.bool(False),
    )
if _merge["kind"] == "edm":
    process.Merged = cms.OutputModule("PoolOutputModule")
elif _merge["kind"] == "nano":  # out of EDM files; which branches is the release's to say
    from Configuration.EventContent.EventContent_cff import NANOAODEventContent

    process.Merged = cms.OutputModule("NanoAODOutputModule", NANOAODEventContent.clone())
    process.add_(cms.Service("InitRootHandlers", EnableIMT=cms.untracked.bool(False)))
process.Merged.fileName = cms.untracked.string(str(_merge["output"]))
process.Merged.logicalFileName = cms.untracked.string(str(_merge["lfn"]))
process.outputPath = cms.EndPath(process.Merged)
