"""How the service stands, as each process knows it for a moment: its level, whether new work may start, how patient to be.

Owns: the words, and what a process remembers. Judged and kept by ``requests_app.service_level``, which no lower layer may name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from django.db import DatabaseError, models

log = structlog.get_logger(__name__)
#: One question in so many seconds and process; the level is that much behind at most.
CACHE_SECONDS = 2.0
#: At its limit a signal strains; at so many times its limit it closes.
CLOSES_AT = 5.0
#: A level is left only when its signals are below this share of what led to it.
EASED = 0.7


class Level(models.TextChoices):
    """How much the service takes on (ADR 0028)."""

    NORMAL = "normal", "Normal"
    STRAINED = "strained", "Strained: what can wait is put off"
    CLOSED = "closed", "Closed: nothing new is started"


@dataclass(frozen=True, slots=True)
class KnownLevel:
    """``no_new_work``: why nothing new starts, empty when it may. ``stretch``: factor from 1 on for limits that judge others."""

    level: Level = Level.NORMAL
    why: str = ""
    no_new_work: str = ""
    stretch: float = 1.0


_read: Callable[[], KnownLevel] = KnownLevel
_known: tuple[KnownLevel, float] = (KnownLevel(), -CACHE_SECONDS)


def use(read: Callable[[], KnownLevel]) -> None:
    """Ask there from now on."""
    global _read, _known
    _read, _known = read, (KnownLevel(), time.monotonic() - CACHE_SECONDS)


def known() -> KnownLevel:
    """As it was read last; while the database does not answer that stays."""
    global _known  # noqa: PLW0603
    last, asked_at = _known
    if time.monotonic() - asked_at < CACHE_SECONDS:
        return last
    _known = (last, time.monotonic())  # others go on with the last meanwhile
    try:
        _known = (_read(), time.monotonic())
    except DatabaseError as error:
        log.warning("the service's level cannot be read, it is taken for what it was", error=str(error).splitlines()[0])
    return _known[0]


def stretched(seconds: float) -> float:
    """A time limit by which others are judged, as long as the trouble here makes it (seconds)."""
    return seconds * known().stretch
