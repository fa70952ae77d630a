"""The configuration of a merge by cmsRun: what is in ``merge.json``'s inputs goes into one file, in the format of its kind.

The release itself says how its files are merged, as for CMS's own merge jobs. It passes over an option that it does not know, so
what it made is looked at. Runs inside cmsRun, so it must also be Python 2.7.
"""

# mypy: ignore-errors
import io
import json

import FWCore.ParameterSet.Config as cms
from Configuration.DataProcessing.Merge import mergeProcess

_KINDS = {
    "edm": ("PoolOutputModule", {}),
    "nano": ("NanoAODOutputModule", {"mergeNANO": True}),  # out of EDM files
    "dqmio": ("DQMRootOutputModule", {"newDQMIO": True}),  # holds monitoring elements by run and lumi, and no events
}

with io.open("merge.json", encoding="utf-8") as stream:
    _merge = json.load(stream)

_module, _options = _KINDS[_merge["kind"]]
_options.update(output_file=str(_merge["output"]))
_options.update(bypassVersionCheck=True)  # the step before may have run in a newer release
process = mergeProcess(**_options)
if process.Merged.type_() != _module:
    raise RuntimeError("this release merges into %s, %s needs %s" % (process.Merged.type_(), _merge["kind"], _module))
process.source.fileNames = cms.untracked.vstring([str(name) for name in _merge["inputs"]])
if process.source.type_() == "PoolSource":
    process.source.duplicateCheckMode = cms.untracked.string("noDuplicateCheck")
    if _merge["compare_guids"]:
        process.source.enforceGUIDInFileName = cms.untracked.bool(True)
