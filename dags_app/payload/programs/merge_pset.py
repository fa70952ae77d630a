"""The configuration of a merge by cmsRun: copies the events of ``merge.json``'s inputs into one file."""

# mypy: ignore-errors
import io
import json

import FWCore.ParameterSet.Config as cms

with io.open("merge.json", encoding="utf-8") as stream:
    _merge = json.load(stream)

process = cms.Process("MERGE")
process.source = cms.Source(
    "PoolSource",
    fileNames=cms.untracked.vstring([str(name) for name in _merge["inputs"]]),
    duplicateCheckMode=cms.untracked.string("noDuplicateCheck"),
    skipBadFiles=cms.untracked.bool(False),
)
process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(-1))
process.Merged = cms.OutputModule(
    "PoolOutputModule",
    fileName=cms.untracked.string(str(_merge["output"])),
    logicalFileName=cms.untracked.string(str(_merge["lfn"])),
)
process.outputPath = cms.EndPath(process.Merged)
