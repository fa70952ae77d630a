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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.rucio.settings import HERE, RucioServerError, Settings

REQUIREMENTS = HERE / "requirements.txt"
# The pip of Python 3.11's ensurepip needs a minute of CPU to choose among files of long indexes; this one needs a few seconds.
PIP_REQUIREMENTS = HERE / "requirements-pip.txt"
MARKER = "wms2-rucio-locks"
# --no-deps: the lock is complete but for docopt, which exists only as a source archive and is imported only by a command line
# tool of stomp.py. So nothing is built and no foreign code runs at installation.
# --no-compile: of 80 packages the server imports a few; Python compiles those when bootstrap imports them.
INSTALL = (
    "install", "--quiet", "--no-input", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:"
)  # fmt: skip


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
        _run(settings, log, python or os.environ.get("PYTHON") or sys.executable, "-m", "venv", str(settings.venv))
        pip = (str(settings.python), "-m", "pip", *INSTALL)
        _run(settings, log, *pip, "--requirement", str(PIP_REQUIREMENTS))
        _run(settings, log, *pip, "--no-compile", "--requirement", str(REQUIREMENTS))
        marker = settings.venv / MARKER
        marker.with_suffix(".tmp").write_text(checksum())
        marker.with_suffix(".tmp").replace(marker)
    return True
