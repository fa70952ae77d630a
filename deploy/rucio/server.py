"""The Rucio server: where its files lie, and how it and the programs of ``inside/`` are started. Nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
ADMIN_ACCOUNT = "root"
SERVICE_ACCOUNT = "wms2"
ACCOUNTS = (ADMIN_ACCOUNT, SERVICE_ACCOUNT)
SCOPE = "cms"
APPLICATION = "rucio.web.rest.flaskapi.v1.main:application"
REQUEST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Server:
    """One server.

    Args:
        state: everything it writes, except the environment.
        venv: the server's environment; servers of several states may share one.
        port: on 127.0.0.1.
        database_url: ``postgresql://…``, of a database that is there, or ``sqlite:////abs/file``.
        storage_root: ``<storage_root>/<RSE>/store/...`` are the files.
        xrootd_port: of the server before the files of the RSE that has one.
    """

    state: Path
    venv: Path
    port: int
    database_url: str
    storage_root: Path
    xrootd_port: int

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    @property
    def config(self) -> Path:
        return self.state / "server/etc/rucio.cfg"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def passwords_file(self) -> Path:
        return self.state / "passwords.json"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def sqlalchemy_url(self) -> str:
        """The URL with the driver named: without it SQLAlchemy would look for psycopg2."""
        return self.database_url.replace("postgresql://", "postgresql+psycopg://", 1)

    def client_home(self, account: str) -> Path:
        """RUCIO_HOME of clients that act as ``account``. The service account's is ``client``: the one WMS2 is given."""
        return self.state / ("client" if account == SERVICE_ACCOUNT else "admin")

    @property
    def argv(self) -> tuple[str | Path, ...]:
        """The server in the foreground. One thread per worker: Rucio's sessions are not made for more."""
        # Workers touch a file each second; on a busy disk that can take longer than the time limit, in memory it cannot.
        heartbeats = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.state  # noqa: S108
        return (
            self.python, "-m", "gunicorn",
            "--config", HERE / "inside/gunicorn_conf.py",
            "--bind", f"{HOST}:{self.port}",
            "--workers", "1" if self.database_url.startswith("sqlite:") else "2",  # writers of SQLite exclude each other
            "--threads", "1",
            "--timeout", str(REQUEST_SECONDS),
            "--worker-tmp-dir", heartbeats,
            "--no-control-socket",  # it would be one for all servers of a user
            "--error-logfile", self.logs / "gunicorn.log",
            "--access-logfile", self.logs / "access.log",
            "--capture-output",
            APPLICATION,
        )  # fmt: skip

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Of everything that runs in the server's environment, which keeps its own bytecode: other checkouts use it too."""
        dropped = ("RUCIO_", "PYTHON")  # another Rucio's client settings, another interpreter's paths
        environment = {k: v for k, v in base.items() if not k.startswith(dropped)}
        environment |= {"RUCIO_HOME": str(self.state / "server"), "RUCIO_CONFIG": str(self.config)}
        return environment | {"PYTHONPATH": str(HERE / "policy"), "PYTHONUNBUFFERED": "1"}

    def preparing(self) -> dict[str, str]:
        """What ``inside/database.py`` is given, not as arguments: the URL may hold a password, and all can read arguments."""
        return {"DATABASE_URL": self.database_url, "PASSWORDS_FILE": str(self.passwords_file)}

    def seeding(self) -> dict[str, str]:
        """What ``inside/seed.py`` is given, which acts as the administrator."""
        home = self.client_home(ADMIN_ACCOUNT)
        return {
            "RUCIO_HOME": str(home),
            "RUCIO_CONFIG": str(home / "etc/rucio.cfg"),
            "STORAGE_ROOT": str(self.storage_root),
            "XROOTD_PORT": str(self.xrootd_port),
            "SCOPE": SCOPE,
            "WMS2_RUCIO_ACCOUNTS": ",".join(ACCOUNTS),
        }
