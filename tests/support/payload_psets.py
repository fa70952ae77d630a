"""Configurations in the form ConfigCache keeps them, for a chain of three steps and for single steps."""

_HEAD = """import FWCore.ParameterSet.Config as cms

process = cms.Process("{process}")
{source}
process.maxEvents = cms.untracked.PSet(
    input = cms.untracked.int32(10)
)
process.options = cms.untracked.PSet(
    wantSummary = cms.untracked.bool(False)
)
process.RandomNumberGeneratorService = cms.Service("RandomNumberGeneratorService",
    generator = cms.PSet(
        engineName = cms.untracked.string('HepJamesRandom'),
        initialSeed = cms.untracked.uint32(123456789)
    )
)
process.GlobalTag = cms.ESSource("PoolDBESSource",
    globaltag = cms.string('from_configcache')
)
process.simulation = cms.untracked.PSet(
    memoryMB = cms.untracked.double(64),
    {simulation}
)
"""

_OUTPUT = """process.{label} = cms.OutputModule("PoolOutputModule",
    dataset = cms.untracked.PSet(
        dataTier = cms.untracked.string('{tier}'),
        filterName = cms.untracked.string('')
    ),
    fileName = cms.untracked.string('file:{label}.root'),
    outputCommands = cms.untracked.vstring('drop *', 'keep *_source_*_*'),
    splitLevel = cms.untracked.int32(0)
)
process.{label}_step = cms.EndPath(process.{label})
"""

#: A mixing module as configurations keep it: with the files of whoever made the configuration.
PREMIX = """process.mixData = cms.EDProducer("PreMixingModule",
    input = cms.SecSource("EmbeddedRootSource",
        fileNames = cms.untracked.vstring('/store/mc/from/the/configuration.root'),
        sequential = cms.untracked.bool(False),
        nbPileupEvents = cms.PSet(averageNumber = cms.double(1.0))
    )
)
"""
GENERATE = 'process.source = cms.Source("EmptySource")'
READ = 'process.source = cms.Source("PoolSource",\n    fileNames = cms.untracked.vstring()\n)'


def pset(
    process: str, source: str, outputs: dict[str, str], simulation: str = "sizePerEventKB = cms.untracked.double(0.1)"
) -> str:
    """A configuration; ``outputs`` are data tiers by module label, ``simulation`` lines of ``process.simulation``."""
    text = _HEAD.format(process=process, source=source, simulation=simulation)
    return text + "".join(_OUTPUT.format(label=label, tier=tier) for label, tier in outputs.items())
