"""The release's own configurations of merges. Options that it does not know are passed over, as by a real release."""

# mypy: ignore-errors
import FWCore.ParameterSet.Config as cms

from Configuration.EventContent.EventContent_cff import NANOAODEventContent


def mergeProcess(*inputFiles, **options):
    """A process that merges ``inputFiles``: ``mergeNANO`` out of EDM files into NanoAOD, ``newDQMIO`` of DQM's format."""
    process = cms.Process("Merge")
    names = cms.untracked.vstring(list(inputFiles))
    if options.get("newDQMIO"):
        process.source = cms.Source("DQMRootSource", fileNames=names, reScope=cms.untracked.string(""))
        process.add_(cms.Service("DQMStore"))
        process.Merged = cms.OutputModule("DQMRootOutputModule")
    else:
        process.source = cms.Source("PoolSource", fileNames=names)
        if options.get("mergeNANO"):
            process.Merged = cms.OutputModule("NanoAODOutputModule", NANOAODEventContent.clone())
        else:
            process.Merged = cms.OutputModule("PoolOutputModule")
    process.Merged.fileName = cms.untracked.string(options.get("output_file", "Merged.root"))
    process.Merged.logicalFileName = cms.untracked.string(options.get("output_lfn", ""))
    process.outputPath = cms.EndPath(process.Merged)
    return process
