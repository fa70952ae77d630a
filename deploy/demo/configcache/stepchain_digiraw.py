"""Digitisation and trigger of the demo; its output feeds the next step and is not kept."""

import FWCore.ParameterSet.Config as cms

process = cms.Process("HLT")

process.source = cms.Source(
    "PoolSource",
    fileNames=cms.untracked.vstring("file:gensim.root"),
    secondaryFileNames=cms.untracked.vstring(),
)

process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(-1))
process.options = cms.untracked.PSet(numberOfThreads=cms.untracked.uint32(1), numberOfStreams=cms.untracked.uint32(0))

process.FEVTDEBUGHLToutput = cms.OutputModule(
    "PoolOutputModule",
    fileName=cms.untracked.string("file:digiraw.root"),
    outputCommands=cms.untracked.vstring("keep *"),
    dataset=cms.untracked.PSet(dataTier=cms.untracked.string("GEN-SIM-DIGI-RAW"), filterName=cms.untracked.string("")),
)
process.FEVTDEBUGHLToutput_step = cms.EndPath(process.FEVTDEBUGHLToutput)

# Read by the simulated cmsRun only: what one event takes.
process.simulation = cms.untracked.PSet(
    timePerEvent=cms.untracked.double(0.01),
    cpuEfficiency=cms.untracked.double(0.85),
    memoryMB=cms.untracked.int32(1200),
    sizePerEventKB=cms.untracked.double(5.0),
)
