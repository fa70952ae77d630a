"""What the environment says to the Rucio server, and the paths that follow from it. Nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.errors import StackError

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
DEFAULT_PORT = 18500
ADMIN_ACCOUNT = "root"
SERVICE_ACCOUNT = "wms2"
SCOPE = "cms"


class RucioServerError(StackError):
    """The server cannot be set up, started or used. The message says what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One server.

    Args:
        state: everything it writes, except the environment.
        venv: the server's environment; servers of several states may share one.
        port: on 127.0.0.1.
        database_url: ``postgresql://…`` or ``sqlite:////abs/file``, as the user gave it.
        workers: gunicorn processes; always 1 with SQLite, whose writers exclude each other.
        storage_root: ``<storage_root>/<RSE>/store/...`` are the files; needed by ``seed`` only.
        xrootd_port: of the server before the files of the RSE that has one; 0: its files are reached as those of the others.
    """

    state: Path
    venv: Path
    port: int
    database_url: str
    workers: int
    storage_root: Path | None
    xrootd_port: int

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    @property
    def server_config(self) -> Path:
        return self.state / "server/etc/rucio.cfg"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def pid_file(self) -> Path:
        return self.state / "gunicorn.pid"

    @property
    def passwords_file(self) -> Path:
        return self.state / "passwords.json"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def sqlalchemy_url(self) -> str:
        """The URL with the driver named: without it SQLAlchemy would look for psycopg2."""
        scheme, _, rest = self.database_url.partition("://")
        return self.database_url if scheme == "sqlite" else f"postgresql+psycopg://{rest}"

    def client_home(self, account: str) -> Path:
        """RUCIO_HOME of clients that act as ``account``. The service account's is ``client``: the one WMS2 is given."""
        return self.state / ("client" if account == SERVICE_ACCOUNT else "admin")

    def server_environment(self) -> dict[str, str]:
        """Environment of everything that runs in the server's environment."""
        dropped = ("RUCIO_", "PYTHON")  # another Rucio's client settings, another interpreter's paths
        environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        environment |= {"RUCIO_HOME": str(self.state / "server"), "RUCIO_CONFIG": str(self.server_config)}
        return environment | {"PYTHONPATH": str(HERE / "policy"), "PYTHONUNBUFFERED": "1"}


def _absolute(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name, "")
    if not value:
        return None
    if not value.startswith("/"):
        raise RucioServerError(f"{name} must be an absolute path, not {value!r}")
    return Path(value)


def _whole_number(environment: Mapping[str, str], name: str, default: int, most: int, least: int = 1) -> int:
    text = environment.get(name, "") or str(default)
    if not text.isdecimal() or not least <= int(text) <= most:
        raise RucioServerError(f"{name} must be a number from {least} to {most}, not {text!r}")
    return int(text)


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings from STATE, VENV, PORT, DATABASE_URL, WORKERS, STORAGE_ROOT and XROOTD_PORT.

    Raises:
        RucioServerError: a value is missing or wrong.
    """
    state = _absolute(environment, "STATE")
    if state is None:
        raise RucioServerError("STATE is not set: give the absolute path of the directory the Rucio server may write to")
    url = environment.get("DATABASE_URL", "") or f"sqlite:///{state}/rucio.db"
    if not url.startswith(("postgresql://", "postgres://", "sqlite:////")):
        raise RucioServerError("DATABASE_URL must begin with postgresql:// or sqlite://// (and an absolute path)")
    workers = _whole_number(environment, "WORKERS", 2, 64)
    return Settings(
        state=state,
        venv=_absolute(environment, "VENV") or state / "venv",
        port=_whole_number(environment, "PORT", DEFAULT_PORT, 65535),
        database_url=url,
        workers=1 if url.startswith("sqlite:") else workers,
        storage_root=_absolute(environment, "STORAGE_ROOT"),
        xrootd_port=_whole_number(environment, "XROOTD_PORT", 0, 65535, least=0),
    )
