"""The server's own virtual environment: Rucio, gunicorn and psycopg, locked with hashes in ``requirements.txt``.

Rucio's server and rucio-clients share module names and pin other versions of common packages, hence an environment apart
from WMS2's.
"""

from __future__ import annotations

from deploy.rucio.settings import HERE, RucioServerError, Settings
from deploy.virtualenv import Environment, digest

# Complete but for docopt, which exists only as a source archive and which only a command line tool of stomp.py imports.
REQUIREMENTS = HERE / "requirements.txt"
# The pip of Python 3.11's ensurepip needs a minute of CPU to choose among files of long indexes; this one needs a few seconds.
PIP_REQUIREMENTS = HERE / "requirements-pip.txt"
INSTALL_SECONDS = 900.0


def checksum() -> str:
    """What a finished environment must carry."""
    return digest(REQUIREMENTS, PIP_REQUIREMENTS)


def _environment(settings: Settings) -> Environment:
    return Environment("rucio", settings.venv, PIP_REQUIREMENTS, REQUIREMENTS, "wms2-rucio-locks", checksum())


def is_finished(settings: Settings) -> bool:
    """Whether the environment is there and was made from these locks."""
    return _environment(settings).is_complete()


def install(settings: Settings, python: str) -> bool:
    """Make the environment with this interpreter unless it is there; returns whether it was made.

    One installer at a time, also between states.

    Raises:
        StackError: venv or pip failed; the message has the end of the log.
    """
    venv = settings.venv

    def check() -> None:
        if venv.exists() and not (venv / "pyvenv.cfg").exists() and any(venv.iterdir()):
            raise RucioServerError(f"VENV {venv} is not a virtual environment but holds files: choose another place")

    log, lock = settings.logs / "install.log", venv.with_name(f"{venv.name}.lock")
    return _environment(settings).ensure(python=python, log=log, locked_by=lock, seconds=INSTALL_SECONDS, check=check)
