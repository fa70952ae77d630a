"""The real Rucio server. ``deploy/rucio`` knows how it is set up and run; here it is fitted into the stack."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from deploy.run import healthy
from deploy.stack import venv
from deploy.stack.services.base import Place, Service


def service(place: Place, port: int, environment: Path, database_url: str, xrootd_port: int) -> Service:
    """One server in the Python environment; ``database_url`` is empty for a SQLite file of its own."""
    # its Python environment, which other checkouts use too, keeps its own bytecode
    place = replace(place, environment={k: v for k, v in place.environment.items() if k != "PYTHONPYCACHEPREFIX"})
    settings = {
        "STATE": str(place.directory / "rucio"),
        "PORT": str(port),
        "VENV": str(environment),
        "DATABASE_URL": database_url,
        "STORAGE_ROOT": str(place.directory / "storage"),
        "XROOTD_PORT": str(xrootd_port),
        "WORKERS": "2",
    }
    program = (venv.interpreter(), "-m", "deploy.rucio.server")

    def run(command: str) -> None:
        place.run(f"rucio-{command}", *program, command, seconds=180.0, **settings)

    return replace(
        place.service("rucio", *program, "run", problem=lambda: healthy.problem(f"http://127.0.0.1:{port}/ping")),
        environment={**place.environment, **settings},
        prepare=lambda: run("setup"),
        finish=lambda: run("seed"),
        stop_signal=signal.SIGINT,  # gunicorn's quick shutdown: its clients have been stopped before
    )
