"""Messages are sent: claimed, sent with no transaction open, recorded. At least once, by the same id, until they are three days
old.

A claim runs out when its process is silent; then another sends the message again. A failure is on the channel, which stands on
the board until a message has arrived.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from requests_app.models import AlertChannel, AlertMessage, ChannelKind
from requests_app.notifying import mail
from requests_app.notifying.forms import mattermost
from requests_app.notifying.secrets import keys_of, secret_of
from wms2.adapters import caller
from wms2.adapters.caller import HeldLease, working_under
from wms2.adapters.webhooks import Webhooks, signed
from wms2.conf import conf
from wms2.errors import ConfigurationError, LeaseLost, ServiceError, Wms2Error
from wms2.metrics.series import ALERT_MESSAGES_TOTAL
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.web.formatting import exact

log = structlog.get_logger(__name__)
#: Longer than any one sending may take.
_CLAIM = timedelta(minutes=3)
_PAUSES = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_GIVEN_UP = timedelta(days=3)
#: No next attempt is further ahead.
_FURTHEST = timedelta(seconds=1.25 * _PAUSES[-1])
#: A mail that some of its recipients have is tried for the others for so long. It keeps no later message waiting.
_GIVEN_UP_PARTLY = timedelta(hours=1)
MOST_ERROR = 1000


def messages_send(*, seconds: float) -> int:
    """Send what is due, for some time; how many arrived."""
    ends_at, arrived = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        lease = HeldLease(caller.since_boot() + _CLAIM.total_seconds())  # before the claim: a pause right after it counts
        if (message := message_claim()) is None:
            break
        try:
            with working_under(lease):
                error = attempted(partial(message_call, message))
        except LeaseLost:
            log.warning("message not sent: this process was stopped, and another has it by now", message=str(message.pk))
            continue
        arrived += message_record(message, error)
    return arrived


def message_claim(*, overdue: timedelta = timedelta()) -> AlertMessage | None:
    """The next that is due, or has been for so long; it belongs to this process for some time.

    Moments that lie further ahead than any that is written were so before the database's clock was set back.
    """
    now = clock.now()
    due = Q(next_attempt_at__lte=now - overdue) | Q(next_attempt_at__gt=now + _FURTHEST)
    # another process may have claimed it since this one asked for the time
    free = Q(claimed_until=None) | Q(claimed_until__lt=now) | Q(claimed_until__gt=now + 2 * _CLAIM)
    with transaction.atomic():
        rows = AlertMessage.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
        rows = rows.filter(due & free, sent_at=None, given_up_at=None)
        rows = rows.filter(Q(channel=None) | Q(channel__enabled=True)).select_related("channel", "user")
        message = rows.order_by("next_attempt_at", "pk").first()
        if message is not None:
            message.claimed_until, message.attempts = now + _CLAIM, message.attempts + 1
            message.save(update_fields=["claimed_until", "attempts"])
    return message


def message_call(message: AlertMessage) -> None:
    """Send one that was claimed. Nothing is written, no database is asked. Raises what keeps it from arriving."""
    senders: dict[str, Callable[[AlertMessage], None]] = {
        ChannelKind.MAIL: mail.mail_send, ChannelKind.WEBHOOK: _webhook, ChannelKind.MATTERMOST: _mattermost,
    }  # fmt: skip
    senders[message.channel.kind if message.channel is not None else ChannelKind.MAIL](message)
    crash_point("alert_message.called")


def attempted(call: Callable[[], object]) -> Exception | None:
    """Why what it sends has not arrived: an unforeseen error too, which must not keep others from being sent, nor be hidden.

    Raises:
        LeaseLost: nothing was called.
    """
    try:
        call()
    except LeaseLost:
        raise
    except (ServiceError, ConfigurationError) as error:
        return error
    except Exception as error:
        log.exception("what was to be sent cannot be sent")
        return error
    return None


def message_record(message: AlertMessage, error: Exception | None) -> bool:
    """What came of it; whether it arrived."""
    if isinstance(error, mail.PartlyTaken) and not error.later:
        _sent(message, str(error))
        return True
    if error is not None:
        _failed(message, error)
        return False
    _sent(message)
    return True


def _sent(message: AlertMessage, refused: str = "") -> None:
    now = clock.now()
    AlertMessage.objects.filter(pk=message.pk).update(sent_at=now, claimed_until=None, last_error=refused[:MOST_ERROR])
    if message.channel is not None and refused:
        AlertChannel.objects.filter(pk=message.channel.pk).update(sent_at=now)
        channel_failed(message.channel, refused, now)
    elif message.channel is not None:
        channel_answered(message.channel, now)
    ALERT_MESSAGES_TOTAL.labels(_kind(message), "sent").inc()
    log.info("message sent", message=str(message.pk), kind=message.kind, attempts=message.attempts, channel=_name(message))


def _failed(message: AlertMessage, error: Exception) -> None:
    now, why = clock.now(), words_of(error)
    values: dict[str, object] = {"claimed_until": None, "last_error": why[:MOST_ERROR]}
    if isinstance(error, mail.PartlyTaken):
        message.content[mail.LEFT_TO] = error.later
        values["content"] = message.content
    given_up = now >= message.created_at + (_GIVEN_UP_PARTLY if mail.LEFT_TO in message.content else _GIVEN_UP)
    given_up = given_up or (message.user is not None and not message.user.email)  # an alert says so
    pause = _PAUSES[min(message.attempts, len(_PAUSES)) - 1] * random.uniform(0.75, 1.25)  # noqa: S311
    next_at = now + timedelta(seconds=pause)
    values |= {"given_up_at": now} if given_up else {"next_attempt_at": next_at}
    # a claim that has run out may be another's by now
    AlertMessage.objects.filter(pk=message.pk, sent_at=None, claimed_until=message.claimed_until).update(**values)
    if message.channel is not None:
        channel_failed(message.channel, why, now)
    ALERT_MESSAGES_TOTAL.labels(_kind(message), "given up" if given_up else "failed").inc()
    log.warning(
        "message not sent",
        message=str(message.pk),
        channel=_name(message),
        error=why,
        next="none" if given_up else exact(next_at),
    )


def words_of(error: Exception) -> str:
    """For the board."""
    return str(error) if isinstance(error, Wms2Error) else f"{type(error).__name__}: {error}"


def channel_failed(channel: AlertChannel, why: str, now: datetime) -> None:
    """It stands on the board, with an alert of the leader's next cycle."""
    AlertChannel.objects.filter(pk=channel.pk).update(
        failures=F("failures") + 1, failing_since=Coalesce("failing_since", now), last_error=why[:MOST_ERROR]
    )


def channel_answered(channel: AlertChannel, now: datetime) -> None:
    """All is well with it."""
    AlertChannel.objects.filter(pk=channel.pk).update(failures=0, failing_since=None, last_error="", sent_at=now)


def post_signed(channel: AlertChannel, webhook_id: str, body: object) -> None:
    """To a webhook as Standard Webhooks has it: signed with each key of the file, so that one can be replaced by another.

    Raises:
        ServiceUnavailable, ServiceRejected: it did not arrive, or may not have.
        ConfigurationError: the address is not allowed, or there is no key.
    """
    data, sent_at = Webhooks.encoded(body), int(time.time())
    headers = signed(webhook_id, sent_at, data, keys_of(channel))
    service_of(channel).post("", data, headers, operation="message")


def service_of(channel: AlertChannel) -> Webhooks:
    """What speaks to a channel. Raises ConfigurationError: its address is not allowed any more."""
    return Webhooks(channel.kind, channel.address, hosts=conf().alert_hosts, plain=conf().environment != "production")


def _webhook(message: AlertMessage) -> None:
    assert message.channel is not None  # noqa: S101  (watchers get mail)
    # as Standard Webhooks has it
    kind = {"alerts": "alerts.changed", "digest": "alerts.digest"}.get(message.kind, "alerts.test")
    body = {"type": kind, "timestamp": message.content["at"], "data": message.content}
    post_signed(message.channel, str(message.pk), body)


def _mattermost(message: AlertMessage) -> None:
    assert message.channel is not None  # noqa: S101
    data = Webhooks.encoded(mattermost(message.content, message.kind))
    service_of(message.channel).post(f"/{secret_of(message.channel)}", data, {}, operation="message")


def _kind(message: AlertMessage) -> str:
    return message.channel.kind if message.channel is not None else "watcher"


def _name(message: AlertMessage) -> str:
    return message.channel.name if message.channel is not None else str(message.user)
