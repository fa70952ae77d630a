"""The server's own virtual environment: Rucio, gunicorn and psycopg, locked with hashes in ``requirements.txt``.

Rucio's server and rucio-clients share module names and pin other versions of common packages, hence an environment apart
from WMS2's. A finished environment carries the checksum of its locks; one without it is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy import virtualenv
from deploy.debian import PackageError
from deploy.rucio.settings import HERE, RucioServerError, Settings

REQUIREMENTS = HERE / "requirements.txt"
# The pip of Python 3.11's ensurepip needs a minute of CPU to choose among files of long indexes; this one needs a few seconds.
PIP_REQUIREMENTS = HERE / "requirements-pip.txt"
MARKER = "wms2-rucio-locks"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; waits for whoever has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def checksum() -> str:
    """What a finished environment must carry."""
    digest = hashlib.sha256()
    for path in (REQUIREMENTS, PIP_REQUIREMENTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_finished(settings: Settings) -> bool:
    """Whether the environment is there and was made from these locks."""
    try:
        made_from = (settings.venv / MARKER).read_text()
    except FileNotFoundError:
        return False
    return made_from == checksum() and os.access(settings.python, os.X_OK)


def _run(settings: Settings, log: Path, *argv: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with log.open("ab") as stream:
        result = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment, check=False
        )
    if result.returncode != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        words = " ".join(argv[:4])
        raise RucioServerError(f"`{words} ...` failed with code {result.returncode}; the end of {log}:\n{end}")


def install(settings: Settings, python: str = "") -> bool:
    """Make the environment unless it is there; returns whether it was made. One installer at a time, also between states.

    Args:
        python: the interpreter to make it with; default $PYTHON, else this one.

    Raises:
        RucioServerError: venv or pip failed; the message has the end of the log.
    """
    if is_finished(settings):
        return False
    with locked(settings.venv.with_name(settings.venv.name + ".lock")):
        if is_finished(settings):  # whoever held the lock made it
            return False
        settings.logs.mkdir(parents=True, exist_ok=True)
        log = settings.logs / "install.log"
        if settings.venv.exists():
            if not (settings.venv / "pyvenv.cfg").exists() and any(settings.venv.iterdir()):
                raise RucioServerError(f"VENV {settings.venv} is not a virtual environment but holds files: choose another place")
            shutil.rmtree(settings.venv)
        interpreter = python or os.environ.get("PYTHON") or sys.executable

        def run(argv: Sequence[str]) -> None:
            _run(settings, log, *argv)

        try:
            pip = virtualenv.create(settings.venv, python=interpreter, pip_lock=PIP_REQUIREMENTS, run=run)
        except PackageError as error:
            raise RucioServerError(f"{interpreter} has no ensurepip, and no other pip could be had: {error}") from error
        # The lock is complete but for docopt, which exists only as a source archive and which only a command line tool of
        # stomp.py imports.
        run([*pip, *virtualenv.INSTALL, str(REQUIREMENTS)])
        marker = settings.venv / MARKER
        marker.with_suffix(".tmp").write_text(checksum())
        marker.with_suffix(".tmp").replace(marker)
    return True
