"""What a call is for, and which calls a web process refuses while it is overloaded (ADR 0033).

Stops, results and health are never refused, everything else is. Views declare their calls, operations whether they stop.
Owns the load of this process; rates of single clients are limited in ``wms2.api.rate_limits``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from wms2.api.problems import MEDIA_TYPE, Problem
from wms2.conf import WEB_THREADS
from wms2.metrics.series import SHED_TOTAL
from wms2.runtime.sql import sql_rows

_COUNTED = "_wms2_counted"
#: Share of busy threads, and seconds of a query that costs nothing, from which on the process is overloaded.
BUSY, SLOW_SECONDS = 0.85, 0.5
#: It is overloaded until both are below this share of their limits.
EASED = 0.7
#: Busy threads are a mean over about this; the database is asked so often.
MEAN_SECONDS, ASK_SECONDS = 5.0, 2.0
RETRY_AFTER_SECONDS = 10
#: The admin and the sign-in are never refused; REST operations are judged one by one.
OPERATORS = ("/admin/", "/login/", "/logout/")


class Call(Enum):
    """What a call is for: its rate (the limit ``rate_limit_<name>``), and whether an overloaded process refuses it."""

    HEALTH = ("", False)
    RESULT = ("read", False)
    STOP = ("act", False)
    ACT = ("act", True)
    SUBMIT = ("submit", True)
    READ = ("read", True)
    POLL = ("read", True, True)
    STREAM = ("streams", True, True)

    def __init__(self, rate: str, refused: bool, waits: bool = False) -> None:
        """``rate`` empty: without limit; ``waits``: it waits in a thread for readers."""
        self.rate, self.refused, self.waits = rate, refused, waits


def call_of(view: Any, method: str) -> Call:
    """What a resolved view is asked for: as its class or the function says; otherwise a read, or an act."""
    declared: Mapping[str, Call] = getattr(getattr(view, "cls", view), "calls", {})
    asked = "get" if method == "HEAD" else method.lower()
    action = (getattr(view, "actions", None) or {}).get(asked, asked)
    return declared.get(action) or (Call.READ if method in ("GET", "HEAD", "OPTIONS") else Call.ACT)


def database_seconds() -> float:
    """How long a query takes that costs the database nothing."""
    began = time.monotonic()
    sql_rows("SELECT 1")
    return time.monotonic() - began


def _waited_seconds() -> float:
    began = time.monotonic()
    with suppress(DatabaseError):
        database_seconds()
    return time.monotonic() - began


class Load:
    """The load of this process. Thread-safe enough: a lost update is made up for by the next call."""

    def __init__(self, database: Callable[[], float] = _waited_seconds, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock, self._lock = database, clock, threading.Lock()
        self._in_flight, self._busy, self._counted_at = 0, 0.0, clock()
        self._slow, self._asked_at, self._over = 0.0, -math.inf, False

    def change(self, by: int) -> None:
        """One call more or less is in flight; the mean so far is of as many as there were."""
        with self._lock:
            now = self._clock()
            weight = 1 - math.exp(-(now - self._counted_at) / MEAN_SECONDS)
            self._busy += (self._in_flight / WEB_THREADS - self._busy) * weight
            self._in_flight, self._counted_at = self._in_flight + by, now

    def is_too_high(self) -> bool:
        """Whether the process is overloaded; it stays so until its load is well below the limits."""
        if self._clock() - self._asked_at >= ASK_SECONDS:
            self._asked_at = self._clock()
            self._slow = self._database()
        share = EASED if self._over else 1.0
        self._over = self._busy >= share * BUSY or self._slow >= share * SLOW_SECONDS
        return self._over


_load = Load()


class SheddingMiddleware:
    """Inside the middlewares that identify the user."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Count it, from its view on."""
        try:
            return self.get_response(request)
        finally:
            if counted := getattr(request, _COUNTED, None):
                counted.change(-1)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """Refuse it, or let it go on to its view."""
        call = call_of(view, str(request.method))
        if not call.waits:
            setattr(request, _COUNTED, _load)
            _load.change(1)
        if not call.refused or request.path.startswith(OPERATORS) or not _load.is_too_high():
            return None
        SHED_TOTAL.labels(call.name.lower()).inc()
        why = "too much is asked of WMS2 at this moment; what stops work and single requests are served"
        if not request.path.startswith("/api/"):
            return page_asked_to_wait(request, 503, why, RETRY_AFTER_SECONDS)
        problem = Problem(503, "overloaded", why, hint="Nothing was done. Wait as long as Retry-After says, then repeat it.")
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return JsonResponse(problem.body(), status=503, headers=headers, content_type=MEDIA_TYPE)


def page_asked_to_wait(request: HttpRequest, status: int, why: str, seconds: int) -> HttpResponse:
    """In place of a page, for people."""
    answer = render(request, "wait.html", {"why": why[:1].upper() + why[1:], "seconds": seconds}, status=status)
    answer["Retry-After"] = str(seconds)
    return answer
