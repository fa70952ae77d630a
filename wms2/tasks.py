"""Celery tasks of what belongs to no app."""

from __future__ import annotations

from wms2.runtime.notify import RUN_BULK
from wms2.runtime.periodic import EFFECTS_SECONDS, task
from wms2.work.bulk import bulk_go_on

#: A worker then takes another task; the next one goes on.
TURN_SECONDS = 10.0


@task(RUN_BULK, queue="effects", beat="bulk", every=EFFECTS_SECONDS)
def run_bulk() -> None:
    """What waits of bulk runs, for some time."""
    bulk_go_on(seconds=TURN_SECONDS)
