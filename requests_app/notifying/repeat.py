"""States that are sent again each minute: what fires, to Alertmanager; and that all is being looked after, to all that want that.

Alertmanager takes what is not repeated for over: ``endsAt`` lies a few minutes ahead while an alert goes on. The heartbeat is
sent only while a leader leads and its cycles end in time: it is missing when those, a worker, the broker, the database or the way
out is down.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import structlog

from requests_app.models import Alert, AlertChannel, ChannelKind
from requests_app.notifying.compose import MOST, alerts_heard
from requests_app.notifying.forms import alertmanager, heartbeat, together
from requests_app.notifying.routing import routed
from requests_app.notifying.send import channel_answered, channel_failed, post_signed, service_of
from requests_app.selectors.alerts import SHOWN, open_alerts
from requests_app.selectors.lifecycle import lifecycle_state
from wms2.adapters.webhooks import Webhooks
from wms2.conf import conf
from wms2.errors import ConfigurationError, ServiceError
from wms2.metrics.series import ALERT_MESSAGES_TOTAL
from wms2.runtime import clock
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
#: The end of an alert is repeated for so long, since one message may be lost.
_ENDS = timedelta(minutes=15)


def alerts_repeat() -> None:
    """Send the state to each channel that wants it; one that fails leaves the others theirs."""
    channels = list(AlertChannel.objects.filter(enabled=True).prefetch_related("routes"))
    wanting = [row for row in channels if row.kind == ChannelKind.ALERTMANAGER or row.heartbeat]
    if not wanting:
        return
    now, driven = clock.now(), not lifecycle_state().undriven
    rows = _rows(now) if any(row.kind == ChannelKind.ALERTMANAGER for row in wanting) else []
    for channel in wanting:
        with row_by_itself("alerts", channel, partial(channel_failed, channel, now=now)):
            _send(channel, rows, now, driven=driven)


def _rows(now: datetime) -> list[Alert]:
    """What fires, and what has ended lately."""
    ended = Alert.objects.filter(ended_at__gt=now - _ENDS).select_related("request").only(*SHOWN).order_by("-id")
    return [*alerts_heard(open_alerts()[:MOST], now), *ended[:MOST]]


def _send(channel: AlertChannel, rows: list[Alert], now: datetime, *, driven: bool) -> None:
    try:
        if channel.kind == ChannelKind.ALERTMANAGER:
            state = [alertmanager(_going_on(alike), now) for alike in together(routed(channel.routes.all(), rows))]
            state += [heartbeat(now)] if channel.heartbeat and driven else []
            if state:
                service_of(channel).post("/api/v2/alerts", Webhooks.encoded(state), {}, operation="alerts")
        elif channel.kind == ChannelKind.WEBHOOK and driven:
            body = {"type": "heartbeat", "timestamp": now.isoformat(), "data": {"installation": conf().instance}}
            post_signed(channel, f"heartbeat-{now:%Y%m%d%H%M}", body)
        else:
            return
    except (ServiceError, ConfigurationError) as error:
        channel_failed(channel, str(error), now)
        ALERT_MESSAGES_TOTAL.labels(channel.kind, "failed").inc()
        log.warning("alerts not repeated, the next minute tries again", channel=channel.name, error=str(error))
        return
    channel_answered(channel, now)
    ALERT_MESSAGES_TOTAL.labels(channel.kind, "sent").inc()


def _going_on(alike: list[Alert]) -> list[Alert]:
    """Of alerts of one code and cause those that go on; the ended ones only where none does."""
    return [row for row in alike if row.ended_at is None] or alike
