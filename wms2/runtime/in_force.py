"""The limits in force: what operators have changed at run time, over the defaults of ``wms2.conf``. Every app reads them here.

A process sees a change within seconds, with no query in between; ``requests_app.limits`` changes them, in the table ``limits``.
What must be exact at the moment of a decision (admission) is read there instead.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from wms2.conf import Limits, conf
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
CACHE_SECONDS = 3.0
#: The limits in force, what they are changes of, and until when they are counted on; at most one.
_known: deque[tuple[Limits, Limits, float]] = deque(maxlen=1)


def in_force() -> Limits:
    """All limits; at most one query in ``CACHE_SECONDS``. Raises django.db.OperationalError: the database does not answer."""
    base = conf().limits
    for limits, of, until in tuple(_known):
        if of is base and time.monotonic() < until:
            return limits
    limits, refused = over(base, _changed())
    if refused:
        log.error("limits are not those of this release, their defaults hold", **refused)
    _known.append((limits, base, time.monotonic() + CACHE_SECONDS))
    return limits


def over(base: Limits, changed: Mapping[str, Any]) -> tuple[Limits, dict[str, str]]:
    """Limits with these changes, but those that this release refuses (another had other bounds): by name, why."""
    accepted, refused = dict[str, Any](), dict[str, str]()
    for name, value in changed.items():
        try:
            accepted[name] = checked(name, value)
        except ValidationError as error:
            refused[name] = error.errors()[0]["msg"]
    return base.model_copy(update=accepted), refused


def checked(name: str, value: object) -> Any:
    """The value as this limit has it. Raises pydantic.ValidationError: it may not have that."""
    return _adapter(name).validate_python(value)


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(Limits.model_fields[name].rebuild_annotation())


def limits_refused() -> dict[str, str]:
    """What operators changed and this release refuses: by name, why. The default holds until it is changed again."""
    return over(conf().limits, _changed())[1]


def forget() -> None:
    """In this process a change holds at once."""
    _known.clear()


def _changed() -> dict[str, Any]:
    rows = sql_rows("SELECT name, value::text FROM limits WHERE name = ANY(%s)", [list(Limits.model_fields)])
    return {name: json.loads(value) for name, value in rows}
