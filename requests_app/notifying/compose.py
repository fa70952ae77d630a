"""Messages are made: what a channel or a watcher has not heard of yet, folded into one, at most one a minute.

What was said is a row for each alert and recipient, written with the message in one transaction: whatever ends in between, each
thing is said in one message, and nothing is left out. While a message waits to be sent, what comes after it waits too and is
folded into the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db.models import Max, Q

from requests_app.models import (
    BY_MESSAGE,
    TERMINAL,
    Alert,
    AlertChannel,
    AlertMessage,
    AlertNotice,
    ChannelKind,
    MessageKind,
    RequestStatus,
    RequestTransition,
    RequestWatch,
    Severity,
)
from requests_app.notifying.forms import MOST_ITEMS, NEW, OVER, REMINDER, WAITS, End, content
from requests_app.notifying.mail import LEFT_TO
from requests_app.notifying.routing import routed
from requests_app.selectors.alerts import SHOWN, open_alerts
from wms2.runtime import clock
from wms2.runtime.grouping import grouped
from wms2.runtime.locks import LockKey, transaction_lock

log = structlog.get_logger(__name__)
#: At most one message to a channel or watcher in this time.
APART = timedelta(minutes=1)
#: An alert that no one has acknowledged is sent again after so many hours.
REMINDER_HOURS = 8.0
#: Hour, UTC, at which channels with a digest get the list of what waits for people.
DIGEST_HOUR = 7
#: Open alerts that are looked through.
MOST = 5000
#: What those who watch a request hear of.
ENDS = (RequestStatus.COMPLETED, *TERMINAL)
_WATCHED = ("user", "created_at", "heard_at", "request__request_name", "request__status", "request__status_since")


class Recipient(NamedTuple):
    """A channel, or a user who watches requests: one of the two, as columns of messages and notices."""

    channel_id: int | None
    user_id: int | None


class Wanted(NamedTuple):
    """What concerns a recipient: open alerts, none for one that only may have to hear of ends; and of a watcher the requests that
    have come to an end since they began to watch them, or since they heard of an end last."""

    alerts: list[Alert]
    ended: list[RequestWatch]


class Notified(NamedTuple):
    """Of what each recipient has heard and not the end: when last, by alert; and those alerts that have ended by now."""

    last_at: Mapping[Recipient, Mapping[int, datetime]]
    ended: Mapping[int, Alert]


def messages_compose() -> int:
    """Make the messages that are due; how many. One process at a time; a fixed number of queries where nothing is to be said."""
    with transaction_lock(LockKey.ALERTS):
        now = clock.now()
        wanted = _wanted()
        if not wanted:
            return 0
        busy, heard = _busy(now), _heard()
        made = [_message(to, each, heard, now) for to, each in wanted.items() if to not in busy]
        made += [_digest(channel, now) for channel in _digests_due(now)]
        return sum(made)


def alerts_notified(rows: Iterable[Alert], now: datetime) -> list[Alert]:
    """Those of which something is said: not while they are silent."""
    return [row for row in rows if row.silenced_until is None or row.silenced_until <= now]


def _wanted() -> dict[Recipient, Wanted]:
    channels = list(AlertChannel.objects.filter(enabled=True, kind__in=BY_MESSAGE).prefetch_related("routes"))
    watching = RequestWatch.objects.filter(user__is_active=True).exclude(user__email="")
    watches = list(watching.select_related("request").only(*_WATCHED))
    if not channels and not watches:
        return {}
    rows = list(open_alerts()[:MOST])
    of_request = grouped(rows, lambda row: row.request_id)
    found = {Recipient(each.pk, None): Wanted(routed(each.routes.all(), rows), []) for each in channels}
    for watch in watches:
        wanted = found.setdefault(Recipient(None, watch.user_id), Wanted([], []))
        wanted.alerts.extend(of_request[watch.request_id])
        if watch.request.status in ENDS and watch.request.status_since > (watch.heard_at or watch.created_at):
            wanted.ended.append(watch)
    return found


def _heard() -> Notified:
    """Two queries."""
    last_at: dict[Recipient, dict[int, datetime]] = defaultdict(dict)
    for channel, user, alert, at in AlertNotice.objects.filter(over=False).values_list("channel", "user", "alert", "last_at"):
        last_at[Recipient(channel, user)][alert] = at
    unsaid = AlertNotice.objects.filter(over=False).order_by().values("alert")
    ended = Alert.objects.filter(pk__in=unsaid, ended_at__isnull=False).select_related("request").only(*SHOWN)
    return Notified(last_at, {row.pk: row for row in ended.order_by("ended_at")[:MOST]})


def _busy(now: datetime) -> set[Recipient]:
    """Those that got a message within the last minute, or of which one still waits. What was made later than now, before the
    database's clock was set back, counts for neither that minute nor a day's digest."""
    waits = Q(sent_at=None, given_up_at=None) & ~Q(content__has_key=LEFT_TO)
    lately = Q(created_at__gt=now - APART, created_at__lte=now) | Q(sent_at__gt=now - APART, sent_at__lte=now)
    rows = AlertMessage.objects.filter(lately | waits, kind=MessageKind.ALERTS)
    return {Recipient(*each) for each in rows.order_by().values_list("channel", "user").distinct()}


def _message(to: Recipient, wanted: Wanted, all_heard: Notified, now: datetime) -> int:
    heard, ended = all_heard.last_at.get(to, {}), wanted.ended[:MOST_ITEMS]
    free = [row for row in alerts_notified(wanted.alerts, now) if not row.owner]
    new = [row for row in free if row.pk not in heard]
    due = now - timedelta(hours=REMINDER_HOURS)
    again = [row for row in free if row.severity != Severity.INFO and row.pk in heard and heard[row.pk] <= due]
    over = [row for pk, row in all_heard.ended.items() if pk in heard]
    if not (new or again or over or ended):
        return 0
    said = content({NEW: new, REMINDER: again, OVER: over}, now, _ends(ended))
    _create(to, MessageKind.ALERTS, said, now)
    AlertNotice.objects.bulk_create([AlertNotice(alert=row, last_at=now, **to._asdict()) for row in new], ignore_conflicts=True)
    notices = AlertNotice.objects.filter(over=False, **to._asdict())
    notices.filter(alert__in=[row.pk for row in again]).update(last_at=now)
    notices.filter(alert__in=[row.pk for row in over]).update(last_at=now, over=True)
    for watch in ended:
        watch.heard_at = watch.request.status_since
    RequestWatch.objects.bulk_update(ended, ["heard_at"])
    return 1


def _ends(ended: Sequence[RequestWatch]) -> list[End]:
    """These ends with who decided it, and why."""
    if not ended:
        return []
    rows = RequestTransition.objects.filter(request__in=[watch.request_id for watch in ended], to_status__in=ENDS)
    last = {row.request_id: row for row in rows.order_by("request_id", "-id").distinct("request_id")}
    return [End(watch.request, last.get(watch.request_id)) for watch in ended]


def _create(to: Recipient, kind: MessageKind, said: dict[str, Any], now: datetime) -> None:
    message = AlertMessage.objects.create(kind=kind, content=said, created_at=now, next_attempt_at=now, **to._asdict())
    log.info("message made", message=str(message.pk), kind=kind.value, alerts=len(said["alerts"]), **to._asdict())


def _digests_due(now: datetime) -> list[AlertChannel]:
    """Channels that have not had today's yet; the hour has come."""
    at = now.replace(hour=DIGEST_HOUR, minute=0, second=0, microsecond=0)
    if now < at:
        return []
    channels = AlertChannel.objects.filter(enabled=True, digest=True).exclude(kind=ChannelKind.ALERTMANAGER)
    known = AlertMessage.objects.filter(kind=MessageKind.DIGEST, channel__in=channels, created_at__lte=now)
    last = known.order_by().values("channel")
    had = {each["channel"] for each in last.annotate(last=Max("created_at")) if each["last"] >= at}
    return [channel for channel in channels if channel.pk not in had]


def _digest(channel: AlertChannel, now: datetime) -> int:
    """It says all that an earlier one would, which need not arrive any more."""
    AlertMessage.objects.filter(channel=channel, kind=MessageKind.DIGEST, sent_at=None, given_up_at=None).update(given_up_at=now)
    rows = alerts_notified(open_alerts()[:MOST], now)
    _create(Recipient(channel.pk, None), MessageKind.DIGEST, content({WAITS: rows}, now), now)
    return 1
