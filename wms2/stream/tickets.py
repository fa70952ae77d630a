"""Tickets: with one the web sends a reader that it has judged to the process ``stream``, which believes what the ticket says.

Both have the secret key. A ticket lets a stream begin for a minute, so that one that is found in a log is worth nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

#: A stream may begin for so long; the hosts' clocks may differ by less.
SECONDS = 60
#: What the secret key is used for here: no other signature made with it is a ticket.
_USE = b"wms2.stream.ticket.1"


class Ticket(NamedTuple):
    """Events behind ``after``, of these kinds (none: all), of the request with that id (None: all); begun before ``until``,
    in seconds since 1970."""

    after: int
    kinds: tuple[str, ...]
    request: str | None
    until: float


class TicketRefused(ValueError):
    """It is not one that the web has given, or not any more; says why."""


def signed(after: int, kinds: tuple[str, ...], request: str | None, secret: str) -> str:
    """A ticket as it stands in an address."""
    body = urlsafe_b64encode(json.dumps(Ticket(after, kinds, request, time.time() + SECONDS)).encode())
    return f"{body.decode()}.{_mac(body, secret)}"


def opened(text: str, secret: str) -> Ticket:
    """What the web has signed.

    Raises:
        TicketRefused: another has written it, or its time is over.
    """
    body, _, mac = text.partition(".")
    if not text.isascii() or not hmac.compare_digest(mac, _mac(body.encode(), secret)):
        raise TicketRefused("this is no ticket for a stream of events")
    after, kinds, request, until = json.loads(urlsafe_b64decode(body))
    if until < time.time():
        raise TicketRefused("the ticket has expired")
    return Ticket(after, tuple(kinds), request, until)


def _mac(body: bytes, secret: str) -> str:
    key = hmac.digest(secret.encode(), _USE, hashlib.sha256)
    return hmac.new(key, body, hashlib.sha256).hexdigest()
