"""Reconstruction of the demo."""

import FWCore.ParameterSet.Config as cms

process = cms.Process("RECO")

process.source = cms.Source(
    "PoolSource",
    fileNames=cms.untracked.vstring("file:digiraw.root"),
    secondaryFileNames=cms.untracked.vstring(),
)

process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(-1))
process.options = cms.untracked.PSet(numberOfThreads=cms.untracked.uint32(1), numberOfStreams=cms.untracked.uint32(0))

process.AODSIMoutput = cms.OutputModule(
    "PoolOutputModule",
    fileName=cms.untracked.string("file:aodsim.root"),
    outputCommands=cms.untracked.vstring("keep *"),
    dataset=cms.untracked.PSet(dataTier=cms.untracked.string("AODSIM"), filterName=cms.untracked.string("")),
)
process.AODSIMoutput_step = cms.EndPath(process.AODSIMoutput)

# Read by the simulated cmsRun only: what one event takes.
process.simulation = cms.untracked.PSet(
    timePerEvent=cms.untracked.double(0.02),
    cpuEfficiency=cms.untracked.double(0.8),
    memoryMB=cms.untracked.int32(1100),
    sizePerEventKB=cms.untracked.double(1.0),
)
