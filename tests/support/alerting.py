"""Alerts of requests, and what sends word of them, for tests of channels."""

from __future__ import annotations

from collections.abc import Callable

from requests_app.alert_rows import AlertSubject
from requests_app.alerts import alert
from requests_app.models import AlertChannel, Request, RequestStatus
from requests_app.notifying import send
from requests_app.notifying.compose import messages_compose
from requests_app.notifying.leading import FromLeader
from tests.support.rows import request_row

#: The fixtures of ``tests/requests_app/notifying``.
Channel = Callable[..., AlertChannel]
Later = Callable[..., None]


def dead(*sites: str) -> list[Request]:
    """A request at each site with an effect that is dead."""
    rows = [request_row(RequestStatus.ACTIVE, campaign="Run3") for _ in sites]
    for row, site in zip(rows, sites, strict=True):
        alert(row, "effect_dead", f"rule: {site} does not answer", AlertSubject(site=site))
    return rows


def sent() -> int:
    """What a worker makes and sends now: how many messages arrived."""
    messages_compose()
    return send.messages_send(seconds=30)


def alerts_repeat() -> None:
    """What the leader sends in a minute."""
    leader = FromLeader()
    leader.poll(lambda now: True)
    leader.finish()
