"""The settings in force: what operators have changed at run time, over ``wms2.conf``. Every app reads them here.

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

from wms2.conf import Conf, conf
from wms2.runtime.sql import sql_rows

log = structlog.get_logger(__name__)
CACHE_SECONDS = 3.0
#: The settings in force, what they are changes of, and until when they are counted on; at most one.
_known: deque[tuple[Conf, Conf, float]] = deque(maxlen=1)


def in_force() -> Conf:
    """All settings; at most one query in ``CACHE_SECONDS``. Raises django.db.OperationalError: the database does not answer."""
    base = conf()
    for settings, of, until in tuple(_known):
        if of is base and time.monotonic() < until:
            return settings
    settings, refused = over(base, _changed())
    if refused:
        log.error("limits are not those of this release, their defaults hold", **refused)
    _known.append((settings, base, time.monotonic() + CACHE_SECONDS))
    return settings


def over(base: Conf, changed: Mapping[str, Any]) -> tuple[Conf, dict[str, str]]:
    """Settings with these changes, but those that this release refuses (another had other bounds): by name, why."""
    accepted, refused = dict[str, Any](), dict[str, str]()
    for name, value in changed.items():
        try:
            accepted[name] = checked(name, value)
        except ValidationError as error:
            refused[name] = error.errors()[0]["msg"]
    return base.model_copy(update=accepted), refused


def checked(name: str, value: object) -> Any:
    """The value as this setting has it. Raises pydantic.ValidationError: it may not have that."""
    return _adapter(name).validate_python(value)


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(Conf.model_fields[name].rebuild_annotation())


def limits_refused() -> dict[str, str]:
    """What operators changed and this release refuses: by name, why. The default holds until it is changed again."""
    return over(conf(), _changed())[1]


def forget() -> None:
    """In this process a change holds at once."""
    _known.clear()


def _changed() -> dict[str, Any]:
    rows = sql_rows("SELECT name, value::text FROM limits WHERE name = ANY(%s)", [list(Conf.model_fields)])
    return {name: json.loads(value) for name, value in rows}
