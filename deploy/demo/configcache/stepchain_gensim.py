"""Generation and detector simulation of the demo, made from nothing."""

import FWCore.ParameterSet.Config as cms

process = cms.Process("GEN")

process.source = cms.Source(
    "EmptySource",
    firstRun=cms.untracked.uint32(1),
    firstLuminosityBlock=cms.untracked.uint32(1),
    firstEvent=cms.untracked.uint32(1),
    numberEventsInLuminosityBlock=cms.untracked.uint32(10),
)

process.maxEvents = cms.untracked.PSet(input=cms.untracked.int32(10))
process.options = cms.untracked.PSet(numberOfThreads=cms.untracked.uint32(1), numberOfStreams=cms.untracked.uint32(0))

process.RandomNumberGeneratorService = cms.Service(
    "RandomNumberGeneratorService",
    generator=cms.PSet(initialSeed=cms.untracked.uint32(123456789), engineName=cms.untracked.string("MixMaxRng")),
)

process.FEVTDEBUGoutput = cms.OutputModule(
    "PoolOutputModule",
    fileName=cms.untracked.string("file:gensim.root"),
    outputCommands=cms.untracked.vstring("keep *"),
    dataset=cms.untracked.PSet(dataTier=cms.untracked.string("GEN-SIM"), filterName=cms.untracked.string("")),
)
process.FEVTDEBUGoutput_step = cms.EndPath(process.FEVTDEBUGoutput)

# Read by the simulated cmsRun only: what one event takes.
process.simulation = cms.untracked.PSet(
    timePerEvent=cms.untracked.double(0.02),
    cpuEfficiency=cms.untracked.double(0.9),
    memoryMB=cms.untracked.int32(900),
    sizePerEventKB=cms.untracked.double(2.0),
)
