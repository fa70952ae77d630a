"""The checkout's Python environment, ``.venv``, made from the hash-locked requirements.

A marker holds what it was made from: the lock's digest and the interpreter. Anything else means "make it again",
so an interrupted set-up is finished by the next one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import virtualenv
from deploy.debian import PackageError
from deploy.stack.errors import StackError
from deploy.stack.paths import Layout
from deploy.stack.steps import locked, run_logged, say

LOCK = Path("requirements/dev.txt")
PIP_LOCK = Path("requirements/pip.txt")
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


def _empty(directory: Path) -> None:
    """Remove what is in a directory, not the directory: it may be another user's gift."""
    for entry in directory.iterdir() if directory.exists() else ():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


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

        def run(argv: Sequence[str]) -> None:
            run_logged(argv, log=log, environment=environment, cwd=layout.source, seconds=INSTALL_SECONDS)

        _empty(layout.venv)
        try:
            pip = virtualenv.create(layout.venv, python=interpreter(), pip_lock=layout.source / PIP_LOCK, run=run)
        except PackageError as error:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise StackError(
                f"{interpreter()} has no ensurepip, this machine has no pip, and none could be fetched: {error}\n"
                f"Install one (on Debian: apt-get install python{version}-venv) or set PYTHON to an interpreter that has it"
            ) from error
        run([*pip, *virtualenv.INSTALL, str(layout.source / LOCK)])
        (layout.venv / MARKER).write_text(wanted(layout))
    say("python environment: complete")
