"""Real interpreters of other versions, as containers of worker nodes bring them, and PATHs with them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

#: The interpreter that runs the tests.
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
#: What ``launch.sh`` calls, and what a shell script of a container may expect.
_TOOLS = ("sh", "sed", "uname", "date", "tr", "cat", "env", "sleep")
#: What one that is too old says to ``launch.sh``.
_STAND_IN = '#!/bin/sh\necho "{version}.15"\nexit 1\n'


def python_of(version: str) -> Path | None:
    """An interpreter of this version that can be run, on PATH or installed by pyenv."""
    if version == THIS:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    found = str(installed[-1]) if installed else shutil.which(f"python{version}")
    return Path(found) if found else None


def place_python(program: Path, version: str) -> None:
    """``program`` becomes an interpreter of this version. Where there is no real one of those that are too old, a stand-in that
    answers as it would; of those that are new enough, the test is skipped."""
    found = python_of(version)
    if found is not None:
        program.symlink_to(found)
    elif tuple(map(int, version.split("."))) < (3, 9):
        program.write_text(_STAND_IN.format(version=version))
        program.chmod(0o755)
    else:
        pytest.skip(f"no Python {version} on PATH or of pyenv that this user can read; PYENV_ROOT says where pyenv's are")


def path_with(directory: Path, *versions: str) -> str:
    """A PATH with the tools of every system, and interpreters of these versions as python3, each in a directory of its own."""
    places = [directory / "tools", *(directory / f"python{version}" for version in versions)]
    for place in places:
        place.mkdir(parents=True)
    for name in _TOOLS:
        (places[0] / name).symlink_to(shutil.which(name) or "")
    for place, version in zip(places[1:], versions, strict=True):
        place_python(place / "python3", version)
    return ":".join(map(str, places))
