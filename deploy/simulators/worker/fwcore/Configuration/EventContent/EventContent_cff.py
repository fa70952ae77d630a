"""Event content that a release defines; merges of NanoAOD ask for it."""

# mypy: ignore-errors
import FWCore.ParameterSet.Config as cms

NANOAODEventContent = cms.PSet(
    outputCommands=cms.untracked.vstring("drop *", "keep nanoaodFlatTable_*Table_*_*"),
    compressionLevel=cms.untracked.int32(9),
)
