"""Writes launchers for the simulated programs into a directory that a pool puts on its jobs' PATH.

Launchers and not the programs themselves: they need uproot, so they must start the one Python that has it, and must find
this package wherever the job runs. Repeatable.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAMS = {"cmsRun": "cmsrun", "hadd": "hadd"}

_ROOT = Path(__file__).resolve().parents[3]
_LAUNCHER = """#!/bin/sh
# Simulated {program}. PYTHONPATH leads to the simulator; cmssim.env beside this file may set its CMSSIM_ variables. The others
# keep numpy from starting threads and setuptools from loading at each start.
unset PYTHONHOME
if [ -f '{directory}/cmssim.env' ]; then set -a; . '{directory}/cmssim.env'; set +a; fi
export PYTHONPATH='{root}' OPENBLAS_NUM_THREADS=1 SETUPTOOLS_USE_DISTUTILS=stdlib
exec '{python}' {bytecode}-s -m deploy.simulators.worker.start {module} "$@"
"""


def install(directory: Path, python: Path, bytecode: Path | str | None = sys.pycache_prefix) -> None:
    """Write one launcher per program into ``directory``. ``python`` must be able to import uproot.

    ``bytecode``: where it keeps what it has compiled, as jobs may not be able to write beside the source; None: only there.
    """
    if not os.access(python, os.X_OK):
        raise SystemExit(f"{python} is not an executable Python: give the project's environment")
    directory.mkdir(parents=True, exist_ok=True)
    for program, module in PROGRAMS.items():
        part = directory / f".{program}.{os.getpid()}.tmp"
        part.write_text(
            _LAUNCHER.format(
                program=program,
                root=_ROOT,
                python=python,
                bytecode="" if bytecode is None else f"-X pycache_prefix='{bytecode}' ",
                module=module,
                directory=directory,
            ),
            encoding="utf-8",
        )
        part.chmod(0o755)
        part.replace(directory / program)
