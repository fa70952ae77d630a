"""Starting a CMSSW program in a step's directory: with the release from CVMFS, or the one on PATH. Owns that choice.

Where ``/cvmfs/cms.cern.ch`` is mounted the step's own release and architecture are used. Elsewhere the program must be on
PATH already (a container or a site that sets up the release itself).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..contract import codes
from ..contract.codes import PayloadError
from . import processes
from .processes import Command, Finished
from .psets import copy_program
from .siteconf import CVMFS

_SETUP_FAILED = 97  # of cmssw_run.sh


def run_in_release(
    command: list[str],
    release: str,
    scram_arch: tuple[str, ...],
    directories: Sequence[Path],
    work: Path,
    variables: dict[str, str],
) -> tuple[Finished, ...]:
    """Run ``command`` in the environment of ``release`` in each of ``directories`` at the same time; output in
    ``<directory>/<program>.stdout|.stderr``. One that fails ends the others.

    PayloadError when neither CVMFS nor PATH has the program, or when the release cannot be set up.
    """
    program = command[0]
    from_cvmfs = CVMFS.is_dir()
    if from_cvmfs:
        script = work / "cmssw_run.sh"
        copy_program("cmssw_run.sh", script)
        command = ["/bin/bash", str(script), release, _architecture(release, scram_arch), str(work / "releases"), *command]
    elif shutil.which(program) is None:
        raise PayloadError(
            codes.EXECUTABLE_NOT_FOUND,
            f"{program} was not found: {CVMFS} is not mounted, and no {program} is on PATH ({os.environ.get('PATH', '')})",
        )
    commands = []
    for directory in directories:
        scratch = work / "tmp" / directory.name
        scratch.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **variables, "TMPDIR": str(scratch)}
        commands.append(Command(command, directory, environment, directory / Path(program).name))
    finished = processes.run_measured(commands)
    if from_cvmfs and any(each.exit_code == _SETUP_FAILED for each in finished):
        raise PayloadError(codes.CMSSW_SETUP_FAILED, f"{release} could not be set up: see {program}.stderr")
    return finished


def _architecture(release: str, scram_arch: tuple[str, ...]) -> str:
    """The first of the request's architectures that CVMFS has."""
    for arch in scram_arch:
        if (CVMFS / arch).is_dir():
            return arch
    raise PayloadError(
        codes.CMSSW_SETUP_FAILED, f"{release}: {CVMFS} has none of {', '.join(scram_arch) or 'no architecture at all'}"
    )
