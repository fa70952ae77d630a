"""The real Rucio server. ``deploy/rucio`` knows how it is set up and run; here it is fitted into the stack."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.rucio.settings import SERVICE_ACCOUNT
from deploy.stack import venv
from deploy.stack.paths import Layout
from deploy.stack.services import http
from deploy.stack.services.base import Service
from deploy.stack.steps import run_logged


@dataclass(frozen=True, slots=True)
class Rucio:
    """One server; ``database_url`` is empty for a SQLite file of its own."""

    layout: Layout
    kind_directory: Path
    port: int
    venv: Path
    database_url: str
    environment: Mapping[str, str]

    @property
    def state(self) -> Path:
        return self.kind_directory / "rucio"

    @property
    def client_home(self) -> Path:
        return self.state / "client"

    @property
    def account(self) -> str:
        return SERVICE_ACCOUNT

    def _settings(self) -> dict[str, str]:
        return {
            **self.environment,
            "STATE": str(self.state),
            "PORT": str(self.port),
            "VENV": str(self.venv),
            "DATABASE_URL": self.database_url,
            "STORAGE_ROOT": str(self.kind_directory / "storage"),
            "WORKERS": "2",
        }

    def _argv(self, command: str) -> tuple[str, ...]:
        return (venv.interpreter(), "-m", "deploy.rucio.server", command)

    def run(self, command: str, seconds: float = 180.0) -> None:
        """Run one command of ``deploy.rucio`` to its end; output in ``logs/rucio-<command>.log``."""
        log = self.kind_directory / f"logs/rucio-{command}.log"
        run_logged(self._argv(command), log=log, environment=self._settings(), cwd=self.layout.source, seconds=seconds)

    def service(self) -> Service:
        return Service(
            name="rucio",
            argv=self._argv("run"),
            log=self.kind_directory / "logs/rucio.log",
            environment=self._settings(),
            cwd=self.layout.source,
            prepare=lambda: self.run("setup"),
            problem=lambda: http.problem(f"http://127.0.0.1:{self.port}/ping"),
            finish=lambda: self.run("seed"),
            stop_signal=signal.SIGINT,  # gunicorn's quick shutdown: whoever asked it anything has been stopped before
        )
