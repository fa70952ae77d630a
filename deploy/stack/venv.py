"""The checkout's Python environment, ``.venv``, made from the hash-locked requirements.

A marker holds what it was made from: the lock's digest and the interpreter. Anything else means "make it again",
so an interrupted set-up is finished by the next one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.stack.errors import StackError
from deploy.stack.paths import Layout
from deploy.stack.steps import locked, run_logged, say

LOCK = Path("requirements/dev.txt")
PIP_LOCK = Path("requirements/pip.txt")
# Every package of the locks has a wheel, so nothing is built. Python compiles what it imports, the rest never.
INSTALL = ("install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile", "--no-input", "-r")
MARKER = ".complete"
INSTALL_SECONDS = 1500.0


def interpreter() -> str:
    """The Python that environments are made from: the one running the stack, not an environment's link to it."""
    return str(Path(sys.executable).resolve())


def wanted(layout: Layout) -> str:
    """What a finished environment's marker must say."""
    digest = hashlib.sha256()
    for lock in (PIP_LOCK, LOCK):
        digest.update((layout.source / lock).read_bytes())
    return f"{digest.hexdigest()} {interpreter()} {sys.version.split()[0]}\n"


def is_complete(layout: Layout) -> bool:
    marker = layout.venv / MARKER
    return marker.exists() and marker.read_text() == wanted(layout) and layout.python.exists()


def _has(program: str, module: str) -> bool:
    return subprocess.run([program, "-c", f"import {module}"], capture_output=True, check=False, timeout=60).returncode == 0


def other_pip() -> list[str] | None:
    """A pip able to install into another interpreter's environment, for systems whose Python has no ensurepip."""
    programs = [interpreter(), *(shutil.which(n) for n in ("python3", "python3.11", "python3.12", "python3.13"))]
    for program in dict.fromkeys(p for p in programs if p):
        if _has(program, "pip"):
            return [program, "-m", "pip"]
    pip = shutil.which("pip3") or shutil.which("pip")
    return [pip] if pip else None


def create(directory: Path, log: Path, environment: Mapping[str, str]) -> list[str]:
    """Make an empty environment in ``directory``; returns the pip command that installs into it."""
    python = interpreter()
    if directory.exists():
        for entry in directory.iterdir():  # the directory itself may be another user's gift: keep it
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    if _has(python, "ensurepip"):
        run_logged([python, "-m", "venv", directory], log=log, environment=environment, cwd=Path("/"), seconds=300)
        return [str(directory / "bin/python"), "-m", "pip"]
    pip = other_pip()
    if pip is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise StackError(
            f"{python} has no ensurepip and there is no pip on this machine: install one (on Debian: apt-get install "
            f"python{version}-venv) or set PYTHON to an interpreter that has it"
        )
    run_logged([python, "-m", "venv", "--without-pip", directory], log=log, environment=environment, cwd=Path("/"), seconds=300)
    return [*pip, "--python", str(directory / "bin/python")]


def ensure(layout: Layout) -> None:
    """Make the environment unless it is complete."""
    if is_complete(layout):
        return
    log = layout.state_root / "logs/venv.log"
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with locked(layout.state_root / "venv.lock", "python environment"):
        if is_complete(layout):
            return
        say(f"python environment: installing the locked packages into {layout.venv} (log: {log})")
        pip = create(layout.venv, log, environment)
        # First pip itself: an older one takes a minute to match hashes against long indexes.
        for command, lock in ((pip, PIP_LOCK), ([str(layout.python), "-m", "pip"], LOCK)):
            argv = [*command, *INSTALL, str(layout.source / lock)]
            run_logged(argv, log=log, environment=environment, cwd=layout.source, seconds=INSTALL_SECONDS)
        (layout.venv / MARKER).write_text(wanted(layout))
    say("python environment: complete")
