"""What a call is for, and which calls a web process refuses while it has too much to do (ADR 0028).

Four classes: what stops, tells results or keeps the service going is never refused; what starts work late; reads earlier;
listings of nodes, logs and the schema first. Views declare their calls, verbs whether they stop. Owns the load of this process;
rates of single clients are limited in ``wms2.api.rate_limits``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

import structlog
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from wms2 import levels
from wms2.api.problems import MEDIA_TYPE, Problem
from wms2.conf import conf
from wms2.metrics import SHED_TOTAL

_COUNTED = "_wms2_counted"
V = TypeVar("V", bound=Callable[..., HttpResponse])
log = structlog.get_logger(__name__)
#: Shares of busy threads, and seconds of a question to the database, at which the first, second and third class is refused.
BUSY, SLOW_SECONDS = (0.7, 0.85, 0.95), (0.2, 0.5, 2.0)
#: A stage is left below this share of what led to it.
EASED = 0.7
#: Busy threads are a mean over about this; the database is asked so often.
MEAN_SECONDS, ASK_SECONDS = 5.0, 2.0
RETRY_AFTER_SECONDS = 10
#: What operators work with, and how they get there, is never refused; the REST verbs are judged one by one.
OPERATORS = ("/admin/", "/login/", "/logout/")
NEVER, LATE, EARLIER, FIRST = 4, 3, 2, 1


class Call(Enum):
    """What a call is for: the stage of load at which it is refused, and the rate that limits it (``Conf.rate_limit_<name>``)."""

    HEALTH = (NEVER, "")
    RESULT = (NEVER, "read")
    STOP = (NEVER, "act")
    ACT = (LATE, "act")
    SUBMIT = (LATE, "submit")
    READ = (EARLIER, "read")
    POLL = (EARLIER, "read", True)
    STREAM = (EARLIER, "streams", True)
    EXTRA = (FIRST, "read")

    def __init__(self, refused_at: int, rate: str, waits: bool = False) -> None:
        """The stage at which it is refused; its rate, empty: without limit; whether it waits in a thread for readers."""
        self.refused_at, self.rate, self.waits = refused_at, rate, waits


def call_of(view: Any, method: str) -> Call:
    """What a resolved view is asked for: as its class or the function says; otherwise a read, or an act."""
    declared: Mapping[str, Call] = getattr(getattr(view, "cls", view), "calls", {})
    asked = "get" if method == "HEAD" else method.lower()
    action = (getattr(view, "actions", None) or {}).get(asked, asked)
    return declared.get(action) or (Call.READ if method in ("GET", "HEAD", "OPTIONS") else Call.ACT)


def asked_for(**calls: Call) -> Callable[[V], V]:
    """Decorates a page's function, by method."""

    def declare(view: V) -> V:
        view.calls = calls  # type: ignore[attr-defined]
        return view

    return declare


def stage_of(now: int, value: float, bounds: Sequence[float]) -> int:
    """How many classes are refused at this value; one that is refused stays so until the value is well below. Pure."""
    up = sum(value >= bound for bound in bounds)
    return max(up, min(now, sum(value >= EASED * bound for bound in bounds)))


def database_seconds() -> float:
    """What a question to the database that costs nothing takes."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return time.monotonic() - began


def _waited_seconds() -> float:
    began = time.monotonic()
    with suppress(DatabaseError):
        database_seconds()
    return time.monotonic() - began


class Load:
    """Of this process. Thread-safe enough: a lost update is made up for by the next call."""

    def __init__(self, database: Callable[[], float] = _waited_seconds, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock, self._lock = database, clock, threading.Lock()
        self._in_flight, self._busy, self._counted_at = 0, 0.0, clock()
        self._slow, self._asked_at, self._stages = 0.0, -math.inf, [0, 0]

    def change(self, by: int) -> None:
        """One call more or less is in flight; the mean so far is of as many as there were."""
        with self._lock:
            now = self._clock()
            weight = 1 - math.exp(-(now - self._counted_at) / MEAN_SECONDS)
            self._busy += (self._in_flight / conf().web_threads - self._busy) * weight
            self._in_flight, self._counted_at = self._in_flight + by, now

    def stage(self) -> int:
        """0: nothing is refused; 3: only what is never refused is served."""
        if self._clock() - self._asked_at >= ASK_SECONDS:
            self._asked_at = self._clock()
            self._slow = self._database()
        measured = ((self._busy, BUSY), (self._slow, SLOW_SECONDS))
        self._stages = [stage_of(old, *each) for old, each in zip(self._stages, measured, strict=True)]
        return max(*self._stages, int(levels.known().level is not levels.Level.NORMAL))


_load = Load()


def use(load: Load) -> None:
    """Judge by it from now on."""
    global _load  # noqa: PLW0603
    _load = load


class SheddingMiddleware:
    """After those that find out who asks."""

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
        if call.refused_at >= NEVER or request.path.startswith(OPERATORS) or _load.stage() < call.refused_at:
            return None
        SHED_TOTAL.labels(call.name.lower()).inc()
        told = "too much is asked of WMS2 at this moment; what stops work and single requests are served"
        if not request.path.startswith("/api/"):
            return page_told_to_wait(request, 503, told, RETRY_AFTER_SECONDS)
        problem = Problem(503, "overloaded", told, hint="Nothing was done. Wait as long as Retry-After says, then repeat it.")
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return JsonResponse(problem.body(), status=503, headers=headers, content_type=MEDIA_TYPE)


def page_told_to_wait(request: HttpRequest, status: int, why: str, seconds: int) -> HttpResponse:
    """In place of a page, for people."""
    told = render(request, "wait.html", {"why": why[:1].upper() + why[1:], "seconds": seconds}, status=status)
    told["Retry-After"] = str(seconds)
    return told
