"""The settings in force: what operators have changed at run time, over ``wms2.conf``. Every app reads them here.

A process sees a change within seconds, with no query in between; ``requests_app.limits`` changes them, in the table ``limits``.
What must be exact at the moment of a decision (admission) is read there instead.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any

import structlog
from django.db import connection
from pydantic import ValidationError

from wms2.conf import Conf, conf

log = structlog.get_logger(__name__)
KEPT_SECONDS = 3.0
#: The settings in force, what they are changes of, and until when they are counted on; at most one.
_known: deque[tuple[Conf, Conf, float]] = deque(maxlen=1)


def in_force() -> Conf:
    """All settings; at most one query in ``KEPT_SECONDS``. Raises django.db.OperationalError: the database does not answer."""
    base = conf()
    for settings, of, until in tuple(_known):
        if of is base and time.monotonic() < until:
            return settings
    try:
        settings = Conf.model_validate({**dict(base), **_changed()})
    except ValidationError as error:  # of a release with other bounds
        log.error("limits are not those of this release, defaults hold", error=str(error))
        settings = base
    _known.append((settings, base, time.monotonic() + KEPT_SECONDS))
    return settings


def forget() -> None:
    """In this process a change holds at once."""
    _known.clear()


def _changed() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, value::text FROM limits WHERE name = ANY(%s)", [list(Conf.model_fields)])
        return {name: json.loads(value) for name, value in cursor.fetchall()}
