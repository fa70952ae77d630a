"""The server's own virtual environment: Rucio, gunicorn and psycopg, locked with hashes in ``requirements.txt``.

Rucio's server and rucio-clients share module names and pin other versions of common packages, hence an environment apart
from WMS2's.
"""

from __future__ import annotations

from pathlib import Path

from deploy.rucio.server import HERE
from deploy.virtualenv import Environment, digest

# Complete but for docopt, which exists only as a source archive and which only a command line tool of stomp.py imports.
REQUIREMENTS = HERE / "requirements.txt"
# The pip of Python 3.11's ensurepip needs a minute of CPU to choose among files of long indexes; this one needs a few seconds.
PIP_REQUIREMENTS = HERE / "requirements-pip.txt"


def checksum() -> str:
    """What a finished environment must carry."""
    return digest(REQUIREMENTS, PIP_REQUIREMENTS)


def environment(directory: Path) -> Environment:
    """The one in this directory."""
    return Environment("rucio", directory, PIP_REQUIREMENTS, REQUIREMENTS, "wms2-rucio-locks", checksum())
