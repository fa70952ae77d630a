"""Where alerts are sent, and which: channels and their routes."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from requests_app.models import AlertChannel, AlertMessage, AlertRoute, ChannelKind, MessageKind, ServiceLevel
from wms2.actions import must_apply
from wms2.adapters.webhooks import address_problem
from wms2.audit import audited
from wms2.conf import conf
from wms2.errors import FieldRefused
from wms2.runtime import clock

#: Mail addresses of one channel.
_MOST_ADDRESSES = 20


def channel_add(*, service: ServiceLevel, actor: str, reason: str, name: str, kind: str, address: str, **more: Any) -> None:
    """A new channel, without routes. Raises FieldRefused: the name is taken, or the address or secret does not do."""
    with audited(actor=actor, action="alert_channel_add", target=name, target_type="alert channel", reason=reason, kind=kind):
        if AlertChannel.objects.filter(name=name).exists():
            raise FieldRefused("name", "there is a channel of this name")
        channel = AlertChannel(name=name, kind=kind, address=address, created_at=clock.now(), created_by=actor, **more)
        _check(channel)
        channel.save()


def channel_change(*, channel: AlertChannel, actor: str, reason: str, address: str, **more: Any) -> None:
    """Where it is, and what else it gets; what waits goes there. Raises FieldRefused: the address or secret does not do."""
    old = {name: getattr(channel, name) for name in ("address", "secret", "digest", "heartbeat")}
    with audited(
        actor=actor, action="alert_channel_change", target=channel.name, target_type="alert channel", reason=reason, old=old
    ):
        for name, value in {"address": address, **more}.items():
            setattr(channel, name, value)
        _check(channel)
        channel.save(update_fields=["address", *more])
        AlertMessage.objects.filter(channel=channel, sent_at=None).update(next_attempt_at=clock.now())


def channel_switch(*, channel: AlertChannel, actor: str, reason: str, enabled: bool) -> None:
    """It is sent to again, what waited now; or nothing is until it is enabled. Raises InvalidTransition: it is so already."""
    action = "alert_channel_enable" if enabled else "alert_channel_disable"
    with audited(actor=actor, action=action, target=channel.name, target_type="alert channel", reason=reason):
        must_apply(channel, switch_refused(channel, enabled=enabled))
        AlertChannel.objects.filter(pk=channel.pk).update(enabled=enabled, failures=0, failing_since=None)
        AlertMessage.objects.filter(channel=channel, sent_at=None).update(next_attempt_at=clock.now())


def channel_remove(*, channel: AlertChannel, actor: str, reason: str) -> AlertChannel:
    """It goes with its routes and what waits for it."""
    with audited(actor=actor, action="alert_channel_remove", target=channel.name, target_type="alert channel", reason=reason):
        AlertChannel.objects.filter(pk=channel.pk).delete()
    return channel


def channel_test(*, channel: AlertChannel, actor: str, reason: str) -> None:
    """A message that says nothing is wrong goes out within seconds. Raises InvalidTransition: it gets no messages."""
    with audited(actor=actor, action="alert_channel_test", target=channel.name, target_type="alert channel", reason=reason):
        must_apply(channel, test_refused(channel))
        now = clock.now()
        said = {"installation": conf().instance, "at": now.isoformat(), "alerts": [], "left_out": 0}
        AlertMessage.objects.create(channel=channel, kind=MessageKind.TEST, content=said, created_at=now, next_attempt_at=now)


def route_add(*, channel: AlertChannel, actor: str, reason: str, code: str = "*", **more: str) -> None:
    """Alerts that fit all that is given go to the channel from now on, those that are open too."""
    with audited(
        actor=actor, action="alert_route_add", target=channel.name, target_type="alert channel", reason=reason, code=code, **more
    ):
        AlertRoute.objects.create(channel=channel, code=code or "*", actor=actor, reason=reason, created_at=clock.now(), **more)


def route_remove(*, route: AlertRoute, actor: str, reason: str) -> AlertRoute:
    """The channel hears of these no more, unless another route fits; the end of what it has heard of it still hears."""
    with audited(actor=actor, action="alert_route_remove", target=str(route), target_type="alert route", reason=reason):
        AlertRoute.objects.filter(pk=route.pk).delete()
    return route


def test_refused(channel: AlertChannel) -> str:
    """Why no test is sent."""
    if channel.kind == ChannelKind.ALERTMANAGER:
        return "It is sent the state each minute; see when it was sent last."
    return "" if channel.enabled else "It is disabled."


def switch_refused(channel: AlertChannel, *, enabled: bool) -> str:
    """Why it cannot be enabled, or disabled."""
    return f"It is {'enabled' if enabled else 'disabled'} already." if channel.enabled == enabled else ""


def _check(channel: AlertChannel) -> None:
    """Raises FieldRefused: what is set does not go together."""
    if channel.kind == ChannelKind.MAIL:
        _check_mail(channel.address)
    elif why := address_problem(channel.address, hosts=conf().alert_hosts, plain=conf().environment != "production"):
        raise FieldRefused("address", why)
    signs = channel.kind in (ChannelKind.WEBHOOK, ChannelKind.MATTERMOST)
    if signs and channel.secret not in conf().alert_secrets:
        known = ", ".join(sorted(conf().alert_secrets)) or "none"
        raise FieldRefused("secret", f"is a name of WMS2_ALERT_SECRETS, known here: {known}")
    if not signs and channel.secret:
        raise FieldRefused("secret", "is for webhooks and Mattermost alone")
    if channel.heartbeat and channel.kind not in (ChannelKind.WEBHOOK, ChannelKind.ALERTMANAGER):
        raise FieldRefused("heartbeat", "is for webhooks and Alertmanager alone")
    if channel.digest and channel.kind == ChannelKind.ALERTMANAGER:
        raise FieldRefused("digest", "is not for Alertmanager, which has the whole state")


def _check_mail(address: str) -> None:
    found = [each.strip() for each in address.split(",")]
    if len(found) > _MOST_ADDRESSES:
        raise FieldRefused("address", f"is {_MOST_ADDRESSES} mail addresses at most")
    for each in found:
        try:
            validate_email(each)
        except ValidationError as error:
            raise FieldRefused("address", f"{each or 'nothing'} is no mail address") from error
    if not conf().mail_server:
        raise FieldRefused("kind", "needs WMS2_MAIL_SERVER")
