"""Python environments made from hash-locked requirements, also where Python came without pip.

Debian's python3 has neither ensurepip nor pip unless further packages are installed. Then any other pip of the machine
does, and where there is none, the one Debian ships as a wheel, fetched without root.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from deploy import debian
from deploy.stack.errors import StackError
from deploy.stack.steps import locked, run_logged, say

# Every package of our locks has a wheel, so nothing is built and no foreign code runs. Python compiles what it imports.
INSTALL = ("install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile", "--no-input", "-r")
# The first pip that can install into another interpreter's environment (--python).
FIRST_PIP = (22, 3)
PIP_SUITE, PIP_PACKAGE = "trixie", "python3-pip-whl"
INSTALL_SECONDS = 1500.0
INTERPRETERS = ("python3", "python3.11", "python3.12", "python3.13")


def has(program: str, module: str) -> bool:
    """Whether an interpreter can import a module."""
    return subprocess.run([program, "-c", f"import {module}"], capture_output=True, check=False, timeout=60).returncode == 0


def _pip_version(command: Sequence[str]) -> tuple[int, ...]:
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.match(r"pip (\d+)\.(\d+)", result.stdout)
    return tuple(map(int, found.groups())) if found else (0,)


def installed_pip(python: str) -> list[str] | None:
    """A pip of this machine that can install into another environment."""
    programs = dict.fromkeys(p for p in (python, *map(which, INTERPRETERS)) if p)
    commands = [[program, "-m", "pip"] for program in programs] + [[p] for p in map(which, ("pip3", "pip")) if p]
    return next((command for command in commands if _pip_version(command) >= FIRST_PIP), None)


@contextmanager
def debian_pip(python: str, directory: Path) -> Iterator[list[str]]:
    """The pip that Debian packs as a wheel, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(dir=directory, prefix="pip.") as place:
        apt = debian.PrivateApt(Path(place) / "apt", PIP_SUITE)
        apt.get("update")
        debian.unpack(apt.download([PIP_PACKAGE]), Path(place) / "unpacked")
        wheel = next((Path(place) / "unpacked").rglob("pip-*.whl"))
        yield [python, str(wheel / "pip")]


def create(directory: Path, *, python: str, pip_lock: Path, run: Callable[[Sequence[str]], None]) -> list[str]:
    """Make the environment in ``directory`` (absent or empty); returns its pip command.

    Args:
        python: the interpreter it is made from.
        pip_lock: requirements with the one pip and its hashes. An older pip may need a minute to match hashes of long locks.
        run: runs a command to its end or raises.

    Raises:
        PackageError: there is no pip, and none could be fetched.
    """
    own = [str(directory / "bin/python"), "-m", "pip"]
    if has(python, "ensurepip"):
        run([python, "-m", "venv", str(directory)])
        run([*own, *INSTALL, str(pip_lock)])
        return own
    run([python, "-m", "venv", "--without-pip", str(directory)])
    into = ("--python", str(directory / "bin/python"))
    installed = installed_pip(python)
    if installed:
        run([*installed, *into, *INSTALL, str(pip_lock)])
        return own
    with debian_pip(python, directory) as pip:
        run([*pip, *into, *INSTALL, str(pip_lock)])
    return own


def digest(*locks: Path) -> str:
    """What an environment made from these locks is recognized by."""
    return hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment. Its marker holds what it was made from: anything else means "make it again", so what an interrupted
    set-up began is finished by the next one.

    Args:
        name: what messages call it.
        directory: where it lies; it stays when what is in it goes, as it may be another user's gift.
        pip_lock, lock: the requirements: pip alone, and all packages.
        marker: name of the marker, a file in ``directory``.
        made_from: what it says in a complete environment.
    """

    name: str
    directory: Path
    pip_lock: Path
    lock: Path
    marker: str
    made_from: str

    @property
    def python(self) -> Path:
        return self.directory / "bin/python"

    def is_complete(self) -> bool:
        marker = self.directory / self.marker
        return marker.exists() and marker.read_text() == self.made_from and os.access(self.python, os.X_OK)

    def ensure(self, *, python: str, log: Path, locked_by: Path) -> None:
        """Make the environment with ``python`` unless it is complete. One set-up at a time.

        Raises:
            StackError: pip failed, which ``log`` tells about, or there is no pip.
        """
        if self.is_complete():
            return
        dropped = ("PYTHONPATH", "PYTHONHOME")  # another interpreter's
        environment = {k: v for k, v in os.environ.items() if k not in dropped} | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}

        def run(argv: Sequence[str]) -> None:
            run_logged(argv, log=log, environment=environment, cwd=self.lock.parent, seconds=INSTALL_SECONDS)

        with locked(locked_by, self.name):
            if self.is_complete():
                return
            say(f"{self.name}: installing the locked packages into {self.directory} (log: {log})")
            for entry in self.directory.iterdir() if self.directory.exists() else ():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            try:
                pip = create(self.directory, python=python, pip_lock=self.pip_lock, run=run)
            except debian.PackageError as error:
                raise StackError(
                    f"{python} has no ensurepip, this machine has no pip, and none could be fetched: {error}\n"
                    "Install one (on Debian: apt-get install python3-venv, of that Python's version) or set PYTHON to an "
                    "interpreter that has it"
                ) from error
            run([*pip, *INSTALL, str(self.lock)])
            (self.directory / self.marker).write_text(self.made_from)
        say(f"{self.name}: complete")
