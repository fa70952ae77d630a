"""The part of CMSSW's configuration language that expanded configurations use, for the simulated cmsRun."""
