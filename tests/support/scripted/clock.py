"""A clock that tests move: the database's (``wms2.runtime.clock``), the host's, whose function field defaults hold on to, and the
one by which processes judge their leases.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db.models import DateTimeField, Value
from django.utils import timezone

from wms2.adapters import caller
from wms2.runtime import clock, combined_query

_real_now = timezone.now


class _Forgetful(dict[Any, Any]):
    """Stores nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def compose_anew(patch: pytest.MonkeyPatch) -> None:
    """Statements that are composed once have a moment in them where the database's clock is not its own."""
    patch.setattr(combined_query, "_composed", _Forgetful())


class Clock:
    """Real time plus what the test added."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        """The time as WMS2 sees it."""
        return _real_now() + self.ahead

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.ahead += timedelta(seconds=seconds)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let all of WMS2 use this clock."""
        patch.setattr(timezone, "now", self.now)
        patch.setattr(clock, "now", self.now)
        since_boot = caller.since_boot
        patch.setattr(caller, "since_boot", lambda: since_boot() + self.ahead.total_seconds())
        patch.setattr(clock, "in_sql", lambda: Value(self.now(), DateTimeField()))
        patch.setattr(clock, "in_plain_sql", lambda: f"timestamptz '{self.now().isoformat()}'")
        compose_anew(patch)
        for model in apps.get_models():
            for field in model._meta.concrete_fields:
                if field.default is _real_now:
                    patch.setattr(field, "_get_default", self.now, raising=False)
