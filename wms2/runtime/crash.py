"""Kill points: ``WMS2_CRASH_AT=<point>[,<point>...]`` ends the process with SIGKILL there, as a power cut would.

A claim / call / record triple has three points, where it has the steps: ``<what>.claimed`` (intent committed, call not made),
``<what>.called`` (call made, result not recorded), ``<what>.recorded``. With ``WMS2_CRASH_MARK=<file>`` each point kills only
once: its name is written there first, so that a worker that is restarted with the same environment goes on to the next.
Points are listed in docs/crash-points.md.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def crash_point(name: str) -> None:
    """Die here if this point was asked for (and has not killed before, where marks are kept); otherwise nothing."""
    if name not in os.environ.get("WMS2_CRASH_AT", "").split(","):
        return
    mark = os.environ.get("WMS2_CRASH_MARK")
    if mark:
        path = Path(mark)
        if path.exists() and name in path.read_text().split():
            return
        with path.open("a") as file:
            file.write(name + "\n")
            file.flush()
            os.fsync(file.fileno())
    os.kill(os.getpid(), signal.SIGKILL)
