"""``loopback.py PORT PROGRAM [ARGUMENT ...]``: become a server that is handed a port of the loopback interface, as systemd would.

XRootD by itself listens on every interface, and no setting of it says otherwise.
"""

from __future__ import annotations

import os
import socket
import sys

BACKLOG = 128
#: The first descriptor that systemd hands on.
HANDED_ON = 3


def main(port: str, *argv: str) -> None:
    """Does not return."""
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=BACKLOG)
    if listener.fileno() != HANDED_ON:
        os.dup2(listener.fileno(), HANDED_ON)
    os.set_inheritable(HANDED_ON, True)
    os.execve(argv[0], argv, {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())})  # noqa: S606  (it is the server)


if __name__ == "__main__":
    main(*sys.argv[1:])
