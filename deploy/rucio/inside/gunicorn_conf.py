"""gunicorn's configuration beside the command line: Rucio is imported once, then the workers are forked.

Importing takes seconds of CPU and 150 MB; this way a start costs one import, and a worker that died is replaced at once.
"""

from __future__ import annotations

from typing import Any

preload_app = True


def post_fork(server: Any, worker: Any) -> None:
    """Forget database connections made while importing: a connection must not be used by two processes."""
    from rucio.db.sqla import session

    session.get_engine().dispose(close=False)
