"""States that are sent again each minute: what fires, to Alertmanager; and that all is being looked after, to all that want that.

Alertmanager takes what is not repeated for over: ``endsAt`` lies a few minutes ahead while an alert goes on. The heartbeat is
sent only while cycles end in time: it is missing when those, their leader, the broker, the database or the way out is down. It
does not need workers: that they are missing is an alert, which is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog
from django.db.models import Q

from requests_app.models import Alert, AlertChannel, AlertMessage, ChannelKind
from requests_app.notifying.compose import MOST, alerts_notified
from requests_app.notifying.forms import alertmanager, heartbeat, together
from requests_app.notifying.routing import routed
from requests_app.notifying.send import channel_answered, channel_failed, post_signed, service_of, words_of
from requests_app.selectors.alerts import SHOWN, open_alerts
from requests_app.selectors.lifecycle import lifecycle_state
from wms2.adapters.webhooks import Webhooks
from wms2.conf import conf
from wms2.metrics.series import ALERT_MESSAGES_TOTAL
from wms2.runtime import clock

log = structlog.get_logger(__name__)
#: The end of an alert is repeated for so long, since one message may be lost.
_ENDS = timedelta(minutes=15)


class State(NamedTuple):
    """What is due at a channel: ``send`` asks no database."""

    channel: AlertChannel
    send: Callable[[], None]


def channels_repeated() -> list[AlertChannel]:
    """Those that get a state; one query if no channel does."""
    wanted = Q(kind=ChannelKind.ALERTMANAGER) | Q(heartbeat=True)
    return list(AlertChannel.objects.filter(wanted, enabled=True).prefetch_related("routes"))


def states_due(channels: list[AlertChannel]) -> list[State]:
    """As things stand now, for each of these."""
    now, driven = clock.now(), not lifecycle_state().undriven
    rows = _rows(now) if any(row.kind == ChannelKind.ALERTMANAGER for row in channels) else []
    return [State(channel, send) for channel in channels if (send := _send(channel, rows, now, driven=driven)) is not None]


def state_record(channel: AlertChannel, error: Exception | None) -> None:
    """What came of it. A heartbeat that arrives says nothing of the messages that do not."""
    now = clock.now()
    ALERT_MESSAGES_TOTAL.labels(channel.kind, "failed" if error else "sent").inc()
    if error is not None:
        channel_failed(channel, words_of(error), now)
        log.warning("alerts not repeated, the next minute tries again", channel=channel.name, error=words_of(error))
    elif not AlertMessage.objects.filter(channel=channel, sent_at=None, given_up_at=None).exclude(last_error="").exists():
        channel_answered(channel, now)


def _rows(now: datetime) -> list[Alert]:
    """What fires, and what has ended lately."""
    ended = Alert.objects.filter(ended_at__gt=now - _ENDS).select_related("request").only(*SHOWN).order_by("-id")
    return [*alerts_notified(open_alerts()[:MOST], now), *ended[:MOST]]


def _send(channel: AlertChannel, rows: list[Alert], now: datetime, *, driven: bool) -> Callable[[], None] | None:
    if channel.kind == ChannelKind.ALERTMANAGER:
        # of alerts of one code and cause those that go on; the ended ones only where none does
        groups = together(routed(channel.routes.all(), rows))
        state = [alertmanager([row for row in alike if row.ended_at is None] or alike, now) for alike in groups]
        state += [heartbeat(now)] if channel.heartbeat and driven else []
        return partial(_post_state, channel, Webhooks.encoded(state)) if state else None
    if channel.kind == ChannelKind.WEBHOOK and driven:
        body = {"type": "heartbeat", "timestamp": now.isoformat(), "data": {"installation": conf().instance}}
        return partial(post_signed, channel, f"heartbeat-{now:%Y%m%d%H%M}", body)
    return None


def _post_state(channel: AlertChannel, data: bytes) -> None:
    service_of(channel).post("/api/v2/alerts", data, {}, operation="alerts")
