"""``loopback.py PORT AWAY PROGRAM [ARGUMENT ...]``: become a server that is handed a port of the loopback interface.

XRootD by itself listens on every interface and can only be changed the way systemd does it. While the file AWAY exists nothing
listens: to see an outage, make it and end the server, which its supervisor starts again.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

BACKLOG = 128
#: The first descriptor that systemd hands on.
HANDED_ON = 3
WATCH_SECONDS = 0.2


def main(port: str, away: str, *argv: str) -> None:
    """Does not return."""
    while Path(away).exists():
        time.sleep(WATCH_SECONDS)
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=BACKLOG)
    if listener.fileno() != HANDED_ON:
        os.dup2(listener.fileno(), HANDED_ON)
    os.set_inheritable(HANDED_ON, True)
    os.execve(argv[0], argv, {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())})  # noqa: S606  (it is the server)


if __name__ == "__main__":
    main(*sys.argv[1:])
