"""The real Rucio server. ``deploy/rucio`` knows how it is set up and run; here it is fitted into the stack."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from deploy.rucio import configuration
from deploy.rucio.server import HERE, Server
from deploy.run import healthy
from deploy.stack.services.base import Place, Service


def service(place: Place, port: int, environment: Path, database_url: str, xrootd_port: int) -> Service:
    """One server in the Python environment; ``database_url`` is empty for a SQLite file of its own."""
    state, storage = place.directory / "rucio", place.directory / "storage"
    server = Server(state, environment, port, database_url or f"sqlite:///{state}/rucio.db", storage, xrootd_port)
    inside = replace(place, environment=server.environment(place.environment))

    def run(program: str, variables: dict[str, str]) -> None:
        inside.run(f"rucio-{program}", server.python, HERE / f"inside/{program}.py", seconds=180.0, **variables)

    def prepare() -> None:
        configuration.write(server)
        run("database", server.preparing())

    return replace(
        inside.service("rucio", *server.argv, problem=lambda: healthy.problem(f"{server.url}/ping")),
        cwd=state,
        prepare=prepare,
        finish=lambda: run("seed", server.seeding()),
        stop_signal=signal.SIGINT,  # gunicorn's quick shutdown: its clients have been stopped before
    )
