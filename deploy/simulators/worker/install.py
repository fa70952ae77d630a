"""Writes launchers for the simulated programs into a directory that a pool puts on its jobs' PATH.

Launchers and not the programs themselves: they need uproot, so they must start the one Python that has it, and must find
this package wherever the job runs. Repeatable; prints what it wrote.
"""

from __future__ import annotations

import argparse
import compileall
import os
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = {"cmsRun": "cmsrun", "hadd": "hadd"}

_ROOT = Path(__file__).resolve().parents[3]
_LAUNCHER = """#!/bin/sh
# Simulated {program}. PYTHONPATH leads to the simulator.
unset PYTHONHOME
export PYTHONPATH='{root}'
exec '{python}' -s -m deploy.simulators.worker.start {module} "$@"
"""


def install(directory: Path, python: Path) -> list[Path]:
    """Write one launcher per program into ``directory``; the paths written. ``python`` must be able to import uproot."""
    if not os.access(python, os.X_OK):
        raise SystemExit(f"{python} is not an executable Python: give the project's environment with --python")
    directory.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(Path(__file__).parent, quiet=2)  # jobs may not be able to write beside the source
    written = []
    for program, module in PROGRAMS.items():
        target = directory / program
        part = directory / f".{program}.{os.getpid()}.tmp"
        part.write_text(_LAUNCHER.format(program=program, root=_ROOT, python=python, module=module), encoding="utf-8")
        part.chmod(0o755)
        part.replace(target)
        written.append(target)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.simulators.worker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("install", help="write launchers for cmsRun and hadd")
    command.add_argument("--bin", type=Path, required=True, help="directory to put on the jobs' PATH")
    command.add_argument("--python", type=Path, default=Path(sys.executable), help="Python that has uproot (default: this one)")
    options = parser.parse_args(arguments)
    for path in install(options.bin.absolute(), options.python.absolute()):
        print(path)
    return 0
