"""Generation and detector simulation of the demo's adaptive request: hardly anything of it runs side by side."""

import os

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

# Read by the simulated cmsRun only: what one event takes, by a clock of its own, on which an hour is a second.
os.environ.update(CMSSIM_CLOCK="simulated", CMSSIM_SPEED="3600")
process.simulation = cms.untracked.PSet(
    timePerEvent=cms.untracked.double(20),
    serialFraction=cms.untracked.double(0.95),
    cpuEfficiency=cms.untracked.double(0.9),
    timeSpread=cms.untracked.double(0.05),
    memoryMB=cms.untracked.double(1500),
    memoryPerThreadMB=cms.untracked.double(200),
    memorySpread=cms.untracked.double(0.01),
    sizePerEventKB=cms.untracked.double(2),
)
