"""Starting a CMSSW program in a step's directory: with the release from CVMFS, or the one on PATH. Owns that choice.

Where ``/cvmfs/cms.cern.ch`` is mounted the step's own release is used, in the newest of its architectures that runs here; one
for another system runs in CMS's container of that, where the node can start one. CVMFS has all of them on every node, so what is
there says nothing. Elsewhere the program must be on PATH already (a container or a site that sets up the release itself).
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..contract import codes
from ..contract.codes import PayloadError
from ..contract.platforms import ARCHITECTURES, compiler_of, system_of
from . import processes
from .processes import Command, Finished
from .psets import copy_program
from .siteconf import CVMFS
from .slot import read_bounds, read_system

_CONTAINER_SECONDS = 300.0
#: What cmssw_run.sh leaves in the program's directory when it has not come to start it: a status alone may be the program's too.
_NO_RELEASE = "release_problem.txt"
#: By which the servers of conditions identify the client.
FRONTIER_ID = "FRONTIER_ID"


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
        arch = _architecture(release, scram_arch)
        command = [*_container(arch, work), "/bin/bash", str(script), release, arch, str(work / "releases"), *command]
    elif shutil.which(program) is None:
        raise PayloadError(
            codes.EXECUTABLE_NOT_FOUND,
            f"{program} was not found: {CVMFS} is not mounted, and no {program} is on PATH ({os.environ.get('PATH', '')})",
        )
    commands = []
    for directory in directories:
        scratch = work / "tmp" / directory.name
        scratch.mkdir(parents=True, exist_ok=True)
        # HOME: what some libraries of CMSSW need; PYTHONPATH: what leads this Python here leads cmsRun's astray
        environment = {"HOME": str(work), **os.environ, **variables, "TMPDIR": str(scratch)}
        if from_cvmfs:  # scram sets it anew; elsewhere it is part of a release that is set up already
            environment["PYTHONPATH"] = ""
        commands.append(Command(command, directory, environment, directory / Path(program).name))
    finished = processes.run_measured(commands, read_bounds())
    for problem in (directory / _NO_RELEASE for directory in directories):
        if from_cvmfs and problem.is_file():
            why = problem.read_text(encoding="utf-8", errors="replace").strip()
            raise PayloadError(codes.CMSSW_SETUP_FAILED, f"{release} could not be set up: {why}; see {program}.stderr")
    return finished


def _architecture(release: str, scram_arch: tuple[str, ...]) -> str:
    """Of the request's architectures the newest that this machine runs: in this system, else in a container."""
    system, machine = read_system(), platform.machine()
    able = [arch for arch in scram_arch if ARCHITECTURES.get("".join(arch.split("_")[1:2]), "").lower() == machine.lower()]
    able = [arch for arch in able if (CVMFS / arch).is_dir()]
    kinds = ("cmssw", "cmssw-patch")
    able = [arch for arch in able if any((CVMFS / arch / "cms" / kind / release).is_dir() for kind in kinds)] or able
    here = [arch for arch in able if system in ("", system_of(arch))]
    others = [arch for arch in able if _enter(arch).is_file()]
    if not (here or others):
        text = (
            f"{release} is there for {', '.join(scram_arch) or 'no architecture at all'}; here is {system or 'an unknown system'}"
        )
        text += f" on {machine}, and {CVMFS} has no container for another"
        raise PayloadError(codes.CMSSW_SETUP_FAILED, text)
    return max(here or others, key=lambda arch: (int(system_of(arch)[4:] or 0), compiler_of(arch)))


def _enter(arch: str) -> Path:
    """CMS's program that starts a container of an architecture's system."""
    return CVMFS / "common" / system_of(arch).replace("rhel", "cmssw-el")


def _container(arch: str, work: Path) -> list[str]:
    """The words before a command that is to run in a container; none where the architecture's system is this one."""
    if (system := read_system()) in ("", system_of(arch)):
        return []
    words = [str(_enter(arch)), "-B", str(work.resolve().parent), "--"]  # the scratch directory: credentials lie there
    answer = processes.run_limited([*words, "/bin/true"], _CONTAINER_SECONDS, os.environ)
    if answer.status != 0:
        said = (answer.stderr + answer.stdout).strip()[-1000:]
        text = f"{arch} needs a container here, in {system}: {' '.join(words)} /bin/true ended with {answer.status}: {said}"
        raise PayloadError(codes.CMSSW_SETUP_FAILED, text)
    return words
