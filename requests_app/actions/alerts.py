"""Operations on alerts, on channels and routes, and watching a request."""

from __future__ import annotations

from functools import partial

import requests_app.actions.control
import requests_app.actions.requests  # noqa: F401  declare what is extended here
from requests_app.models import Alert, AlertChannel, AlertRoute, ChannelKind, Request, ServiceLevel, Severity
from requests_app.selectors.alert_texts import words_of
from requests_app.selectors.requests import watched_by
from requests_app.services import alert_channels, alerts
from wms2.actions import Action, Field, Kind, Owned, ResourceType, Role, declare, extend, preview_each

#: Operators, and the admins of the site that an alert is about.
_ROLES = (Role.SITE_ADMIN, Role.OPERATOR)
_ALONE = Field("alone", Kind.FLAG, "this one alone, not all open ones of its code and cause", blank=False)


def _words(alert: Alert) -> list[str]:
    words = words_of(alert.code)
    number = Alert.objects.filter(code=alert.code, cause=alert.cause, ended_at=None).count()
    return [f"{words.means} {words.todo}", f"{number} open of its code and cause; all are meant, unless it is alone."]


declare(
    ResourceType(
        Alert, "alert", "alert", lambda key: Alert.objects.filter(pk=key),
        lambda alert: (f"{alert.state} {alert.owner} {alert.silenced_until}",
                       f"{alert.state}{f' by {alert.owner}' if alert.owner else ''}"),
        "alerts/<int:pk>", owner=lambda alert: Owned(sites=frozenset({alert.site} if alert.site else ())),
    ),
    Action(
        "acknowledge", "Acknowledge", "You have it from now on, or the user named: no reminders are sent while it goes on.",
        alerts.alert_acknowledge, preview_each(_words),
        (
            Field("owner", help="user who has it; without it, you", length=150),
            Field("take_over", Kind.FLAG, "also where another person has it already", blank=False),
            _ALONE,
        ),
        refused=alerts.over_refused, repeated=alerts.acknowledged_so, path="acknowledge", roles=_ROLES, inverse="give-back",
    ),
    Action(
        "give-back", "Give back", "It is free again, and reminders are sent.", alerts.alert_give_back, preview_each(_words),
        (_ALONE,), refused=alerts.give_back_refused, path="give-back", roles=_ROLES, inverse="acknowledge",
    ),
    Action(
        "silence", "Silence", "Nothing is sent about it until a time, at most 30 days away; pages still show it.",
        alerts.alert_silence, preview_each(_words),
        (Field("until", Kind.MOMENT, "UTC, e.g. 2026-12-24 08:00", required=True), _ALONE),
        refused=alerts.over_refused, path="silence", roles=_ROLES, inverse="end-silence",
    ),
    Action(
        "end-silence", "End the silence", "What is sent about it is sent again.", alerts.alert_unsilence, preview_each(_words),
        (_ALONE,), refused=alerts.unsilence_refused, path="end-silence", roles=_ROLES, inverse="silence",
    ),
)  # fmt: skip

_PLACE = (
    Field("address", help="mail addresses with commas between them, or a URL", required=True, length=1000),
    Field("secret", help="name in WMS2_ALERT_SECRETS, of webhooks and Mattermost", length=100, blank=""),
    Field("digest", Kind.FLAG, "a list of what waits for people once a day", blank=False),
    Field("heartbeat", Kind.FLAG, "a sign each minute that all is being looked after", blank=False),
)
_MATCH = (
    Field("code", help="pattern of alert codes, e.g. effect_*; without it all", length=60, blank="*"),
    Field("severity", Kind.CHOICE, "without it any", choices=tuple(Severity.choices), blank_label="any", blank=""),
    Field("campaign", help="pattern of campaigns", length=100, blank=""),
    Field("site", help="pattern of sites", length=100, blank=""),
    Field("request_name", Kind.NAME, "of this request alone", blank=""),
)

declare(
    ResourceType(
        AlertChannel, "alert-channel", "channel", lambda name: AlertChannel.objects.filter(name=name),
        lambda channel: (f"{channel.address} {channel.enabled}", "enabled" if channel.enabled else "disabled"),
        "alert-channels/<int:pk>",
    ),
    Action(
        "change-channel", "Change", "Where the channel is, and what it gets beside alerts; what waits is sent there.",
        alert_channels.channel_change, None, _PLACE, path="change", single=True, inverse="change-channel",
        initial=lambda channel: {one.name: getattr(channel, one.name) for one in _PLACE},
    ),
    Action(
        "add-route", "Send alerts there", "Alerts that fit all that is given go to the channel, those that are open too.",
        alert_channels.route_add, None, _MATCH, path="routes", single=True,
    ),
    Action(
        "test", "Send a test", "A message that says nothing is wrong goes out within seconds.", alert_channels.channel_test,
        refused=alert_channels.test_refused, path="test",
    ),
    Action(
        "enable", "Enable", "It is sent to again; what waited is sent now.", partial(alert_channels.channel_switch, enabled=True),
        refused=partial(alert_channels.switch_refused, enabled=True), path="enable", inverse="disable",
    ),
    Action(
        "disable", "Disable", "Nothing is sent to it until it is enabled.", partial(alert_channels.channel_switch, enabled=False),
        refused=partial(alert_channels.switch_refused, enabled=False), path="disable", inverse="enable",
    ),
    Action(
        "remove", "Remove", "The channel goes with its routes and what waits for it.", alert_channels.channel_remove,
        path="remove", dangerous=True,
    ),
)  # fmt: skip

declare(
    ResourceType(
        AlertRoute, "alert-route", "route", lambda key: AlertRoute.objects.filter(pk=key),
        lambda route: (str(route), str(route)), "alert-routes/<int:pk>",
    ),
    Action(
        "remove", "Remove", "The channel hears of these no more, unless another route fits.", alert_channels.route_remove,
        path="remove", dangerous=True,
    ),
)  # fmt: skip

extend(
    ServiceLevel,
    Action(
        "add-alert-channel", "Add a channel for alerts", "Where alerts may be sent; which go there is said by its routes.",
        alert_channels.channel_add, None,
        (
            Field("name", help="of the new channel", required=True, length=100),
            Field("kind", Kind.CHOICE, "how it is spoken to", required=True, choices=tuple(ChannelKind.choices)),
            *_PLACE,
        ),
        path="add-alert-channel", single=True,
    ),
)  # fmt: skip

extend(
    Request,
    Action(
        "watch", "Watch", "You get mails about its alerts, when it is held, and when it has ended.", alerts.request_watch,
        path="watch", roles=(Role.VIEWER,), inverse="unwatch", fits=lambda request, user: not watched_by(request, user),
    ),
    Action(
        "unwatch", "Stop watching", "No mails about it to you any more.", alerts.request_unwatch, path="watch", method="delete",
        roles=(Role.VIEWER,), inverse="watch", fits=watched_by,
    ),
)  # fmt: skip
