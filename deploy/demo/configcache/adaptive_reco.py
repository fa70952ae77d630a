"""Reconstruction of the demo's adaptive request: its threads do well, and it takes memory for each."""

import os

import FWCore.ParameterSet.Config as cms

process = cms.Process("RECO")

process.source = cms.Source(
    "PoolSource",
    fileNames=cms.untracked.vstring("file:gensim.root"),
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

# Read by the simulated cmsRun only: what one event takes, by a clock of its own, on which an hour is a second.
os.environ.update(CMSSIM_CLOCK="simulated", CMSSIM_SPEED="3600")
process.simulation = cms.untracked.PSet(
    timePerEvent=cms.untracked.double(80),
    cpuEfficiency=cms.untracked.double(0.9),
    timeSpread=cms.untracked.double(0.05),
    memoryMB=cms.untracked.double(1200),
    memoryPerThreadMB=cms.untracked.double(300),
    memorySpread=cms.untracked.double(0.01),
    sizePerEventKB=cms.untracked.double(3),
)
