"""Who we are: the name of this process and of this node, for leases and claims."""

from __future__ import annotations

import os
import socket


def node_name() -> str:
    """This machine's worker node; ``WMS2_NODE`` distinguishes several on one host."""
    return os.environ.get("WMS2_NODE") or socket.gethostname()


def process_name() -> str:
    """Unique per process: node and pid."""
    return f"{node_name()}:{os.getpid()}"
