"""Throttle of sign-ins: failures are counted by name and address, and beyond a number no password or token is checked.

Owns: counting, the wait, its one log line and audit entry, and the answer 429 to the sign-in form. The counts are in the broker,
for all processes together; while that is silent each process counts for itself, so that no user is locked out by its outage.
Losing them costs a few guesses more. Not here: whether a password is right (Django), what
tokens are answered (``wms2.api.tokens``).
"""

from __future__ import annotations

import hashlib
import math
from ipaddress import ip_address
from typing import Any

import structlog
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from wms2.audit import audit
from wms2.conf import conf
from wms2.metrics.series import SIGN_INS_BRAKED_TOTAL
from wms2.runtime.shared_counts import Counts, SharedCounts

#: Failures are counted within this; it begins with the first one and is as long as anyone waits.
WINDOW_SECONDS = 300.0
#: Wrong passwords for one user name from one address within the window; from then on no attempt is checked until it is over.
FAILURES_PER_NAME = 5
#: The same for all names from one address, and for wrong tokens over REST.
FAILURES_PER_ADDRESS = 20

log = structlog.get_logger(__name__)
_WAITS = "_wms2_sign_in_waits_seconds"
_COUNTED = "_wms2_sign_in_counted"
#: Where they are counted; with a broker, all processes of the installation count together.
attempts = SharedCounts()
#: Peers that named the addresses of others while no proxy is counted.
_proxies_not_counted = set[str]()


def address_of(request: HttpRequest) -> str:
    """Whose request it is: the peer, or, behind ``proxies_in_front`` proxies, what the outermost of them saw. Empty: unknown."""
    proxies = conf().proxies_in_front
    peer = str(request.META.get("REMOTE_ADDR") or "")
    if not proxies:
        if "HTTP_X_FORWARDED_FOR" in request.META and _is_near(peer):
            _proxies_not_counted.add(peer)
        return peer
    hops = [hop.strip() for hop in str(request.META.get("HTTP_X_FORWARDED_FOR", "")).split(",") if hop.strip()]
    return hops[-proxies] if len(hops) >= proxies else peer


def proxy_not_counted() -> str:
    """What to do about a proxy in front of this process that ``proxies_in_front`` does not count; empty: it has seen none."""
    if not _proxies_not_counted or conf().proxies_in_front:
        return ""
    return (
        f"requests come through a proxy at {min(_proxies_not_counted)} and WMS2_PROXIES_IN_FRONT is 0: all who are not signed in"
        " share its address and one rate. Set it to the number of proxies, or have the proxy send no X-Forwarded-For"
    )


def _is_near(peer: str) -> bool:
    """Whether the address is of this host or a private network, as those of proxies are."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def password_tried(name: str, address: str) -> float:
    """Count an attempt before its password is judged; seconds that it has to wait, 0: judge it.

    Attempts, not failures: many at the same moment cannot all come before the first of them has failed.
    """
    by_address = _key("password", address)
    wait = _counted(by_address, FAILURES_PER_ADDRESS, "password", "", address) if address else 0.0
    if wait:
        return wait
    wait = _counted(_key("password", address, name), FAILURES_PER_NAME, "password", name, address)
    if wait and address:  # a name that waits anyway says nothing more about its address
        _take_back(by_address)
    return wait


def password_right(name: str, address: str) -> None:
    """The attempt that was counted was no failure."""
    attempts.ask(lambda counts: counts.drop(_key("password", address, name)))
    if address:
        _take_back(_key("password", address))


def token_wrong(address: str) -> float:
    """Count an unknown token; seconds to wait, 0: answer that it is wrong. Right tokens never wait."""
    return _counted(_key("token", address), FAILURES_PER_ADDRESS, "token", "", address) if address else 0.0


def first_in_window(*what: str, seconds: float = WINDOW_SECONDS) -> bool:
    """Whether this has not happened within the window before: what is written down once, however often it is repeated."""
    return attempts.ask(lambda counts: counts.add(_key("once", *what), seconds))[0] == 1


def _counted(key: str, most: int, way: str, name: str, address: str) -> float:
    number, left = attempts.ask(lambda counts: counts.add(key, WINDOW_SECONDS))
    if number <= most:
        return 0.0
    seconds = max(1.0, left)
    SIGN_INS_BRAKED_TOTAL.labels(way).inc()
    if number == most + 1:
        log.warning("sign-ins wait after failures", way=way, name=name[:100], address=address[:100], seconds=round(seconds))
        audit(
            actor="unknown", action="sign_in_braked", target_type="user" if name else "address", target=(name or address)[:300],
            reason=f"too many failures; nothing is judged for {round(seconds)} s", refused=True, way=way, address=address,
        )  # fmt: skip
    return seconds


def _take_back(key: str) -> None:
    """One attempt less."""

    def back(counts: Counts) -> None:
        if counts.add(key, WINDOW_SECONDS, by=-1)[0] < 0:
            counts.drop(key)

    attempts.ask(back)


def _key(*parts: str) -> str:
    """Of a fixed length, however long the input is."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


class LoginThrottleBackend:
    """First of the authentication backends: authenticates no user, and ends attempts that have to wait."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None, password: str | None = None) -> None:
        """None; the next backend decides. Raises PermissionDenied: the name or the address has to wait; Django asks no other
        backend then."""
        if request is None or username is None:
            return
        seconds = password_tried(username, address_of(request))
        if seconds:
            setattr(request, _WAITS, seconds)
            raise PermissionDenied
        setattr(request, _COUNTED, True)


class LoginThrottleMiddleware(MiddlewareMixin):
    """A form whose attempt was not judged must not say that the password is wrong."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """The form's answer, or how long to wait."""
        seconds = getattr(request, _WAITS, 0.0)
        return sign_in_waits(request, seconds) if seconds else response


def sign_in_waits(request: HttpRequest, seconds: float) -> HttpResponse:
    """The page that says how long to wait before a password is judged."""
    whole = math.ceil(seconds)
    answer = render(request, "429.html", {"seconds": whole}, status=429)
    answer["Retry-After"] = str(whole)
    return answer


@receiver(user_logged_in, dispatch_uid="wms2.sign_in")
def forget_failures(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    """The attempt was no failure. Sign-ins without a password were not counted: they give no guesses back."""
    if request is None or not hasattr(request, _COUNTED):
        return
    password_right(user.get_username(), address_of(request))
