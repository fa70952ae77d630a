"""How often one identity may do one kind of thing (ADR 0028): counted in the broker by one atomic script, and by its clock.

A refused client learns when a place is free for them: refusals are dealt out over the windows that follow, so many to each
as it has places. While the broker does not answer no client is refused; that is counted.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from wms2.api.problems import Problem, ProblemError
from wms2.identities.front_end import ANONYMOUS
from wms2.metrics.series import RATE_LIMITED_TOTAL, RATE_LIMITS_OPEN_TOTAL
from wms2.runtime.in_force import in_force
from wms2.runtime.shared_counts import Broker
from wms2.web.login_throttle import address_of
from wms2.web.shedding import call_of, page_asked_to_wait

#: Places are promised for so many windows ahead at most.
_MOST_WINDOWS = 30
_SCRIPT = """
local window, limit, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = redis.call('HMGET', KEYS[1], 'began', 'count', 'owed')
local began, count, owed = tonumber(kept[1]) or now, tonumber(kept[2]) or 0, tonumber(kept[3]) or 0
local passed = math.floor((now - began) / window)
if passed > 0 then
  began, count, owed = began + passed * window, 0, math.max(0, owed - passed * limit)
end
local wait = 0
if count < limit then
  count = count + 1
else
  owed = math.min(owed + 1, most * limit)
  wait = began + window * math.ceil(owed / limit) - now
end
redis.call('HSET', KEYS[1], 'began', began, 'count', count, 'owed', owed)
redis.call('PEXPIRE', KEYS[1], window * (1 + math.ceil(owed / limit)))
return {wait, limit - count, began + window - now}
"""


class Answer(NamedTuple):
    """Seconds to wait, 0: go on; calls left in this window, and seconds until the next one."""

    wait: float
    left: int
    window_left: float


class RateLimits:
    """Thread-safe; never raises."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self._script = broker, broker.client.register_script(_SCRIPT)

    def ask(self, rate: str, identity: str, limit: int, window_seconds: float) -> Answer | None:
        """Count one call; None while the broker is silent."""

        def counted() -> Answer:
            args = [int(window_seconds * 1000), limit, _MOST_WINDOWS]
            said: Any = self._script(keys=[f"{self.broker.prefix}:{rate}:{identity}"], args=args)
            return Answer(said[0] / 1000, int(said[1]), said[2] / 1000)

        return self.broker.ask(counted, RATE_LIMITS_OPEN_TOTAL.inc)


_limits: RateLimits | None = None


def use(limits: RateLimits | None) -> None:
    """Count there from now on; None: not at all."""
    global _limits  # noqa: PLW0603
    _limits = limits


class RateThrottle(BaseThrottle):
    """Of every REST view; its answers say what is left."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Always, or it raises. Raises ProblemError: 429, with the seconds after which the call gets through."""
        match = request.resolver_match
        rate = call_of(match.func, str(request.method)).rate if match is not None else ""
        said = _counted(rate, request.user, request._request)
        if said is None:
            return True
        limit, window = _limit(rate), in_force().rate_limit_window_seconds
        view.headers |= {
            "RateLimit-Limit": f"{limit}, {limit};w={window:g}",
            "RateLimit-Remaining": str(said.left),
            "RateLimit-Reset": str(math.ceil(said.window_left)),
        }
        if not said.wait:
            return True
        seconds = math.ceil(said.wait)
        reported = f"more than {limit} calls ({rate}) within {window:g} s; again in {seconds} s"
        problem = Problem(
            429, "rate_limited", reported, hint="Nothing was done. After Retry-After seconds there is a place for it."
        )
        raise ProblemError(problem, {"Retry-After": str(seconds)})


class PageRateMiddleware(MiddlewareMixin):
    """The same rates for pages and admin: by user, and by address for who reads before signing in; the sign-in itself has its own
    throttle."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """What REST serves is judged there, since tokens are read there."""
        if request.path.startswith("/api/"):  # who it is must not be asked here: a token is not read yet
            return None
        if not request.user.is_authenticated and request.method not in ("GET", "HEAD"):
            return None
        said = _counted(call_of(view, str(request.method)).rate, request.user, request)
        if said is None or not said.wait:
            return None
        return page_asked_to_wait(request, 429, "You ask for more than may be asked for at once", math.ceil(said.wait))


def _limit(rate: str) -> int:
    return int(getattr(in_force(), f"rate_limit_{rate}")) if rate else 0


def _counted(rate: str, user: Any, request: HttpRequest) -> Answer | None:
    """None: nothing is limited."""
    if not _limit(rate) or _limits is None:
        return None
    has_name = user.is_authenticated and user.get_username() != ANONYMOUS
    identity = f"user-{user.pk}" if has_name else f"at-{address_of(request)}"
    said = _limits.ask(rate, identity, _limit(rate), in_force().rate_limit_window_seconds)
    if said is not None and said.wait:
        RATE_LIMITED_TOTAL.labels(rate).inc()
    return said
