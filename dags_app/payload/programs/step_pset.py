"""The configuration that cmsRun is given: a step's own configuration with ``tweak.json`` applied."""

# mypy: ignore-errors
import os
import sys

sys.path.insert(0, os.getcwd())

from cmssw_tweak import load_process

process = load_process("original.py", "tweak.json")
