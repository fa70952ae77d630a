"""The time range of pages over time: one parameter, ``range``, in all their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

RANGES = {"6h": timedelta(hours=6), "24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
DEFAULT = "24h"


class TimeRange(NamedTuple):
    """From then to now."""

    name: str
    begins: datetime
    ends: datetime

    @property
    def choices(self) -> tuple[str, ...]:
        """Names of those that may be chosen."""
        return tuple(RANGES)

    @classmethod
    def of(cls, given: Mapping[str, str], now: datetime | None = None) -> TimeRange:
        """The one that an address asks for; the last 24 hours where it asks for none that there is."""
        name, ends = given.get("range", DEFAULT), now or timezone.now()
        name = name if name in RANGES else DEFAULT
        return cls(name, ends - RANGES[name], ends)
