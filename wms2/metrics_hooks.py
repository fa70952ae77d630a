"""When the counters of dead processes are folded: at the start of a worker or of beat. gunicorn has ``deploy/run/web.py``.

Imported by ``wms2.apps`` for its registrations, after which Celery's signals reach it.
"""

from __future__ import annotations

from typing import Any

from celery.signals import beat_init, worker_init

from wms2.metrics_files import fold_own


def fold_at_start(**_: Any) -> None:
    """What former processes of this kind have counted becomes one file."""
    fold_own()


worker_init.connect(fold_at_start)
beat_init.connect(fold_at_start)
