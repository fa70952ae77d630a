"""Lists of alerts, of where they are sent and of which go there. Operations are made from ``requests_app.actions.alerts``."""

from __future__ import annotations

import django_filters
from django.db.models import Q, QuerySet

import requests_app.actions  # noqa: F401  declares them
from requests_app.models import Alert, AlertChannel, AlertRoute, ChannelKind, Severity
from requests_app.selectors.alert_texts import runbook_url, words_of
from requests_app.selectors.alerts import alerts_shown, channels_shown, routes_shown
from wms2.api.answers import Computed, rows
from wms2.api.filters import ChoicesFilter, TextFilter, TrueFalseFilter, since, until, whether
from wms2.api.views import RowsViewSet
from wms2.runtime import clock

AlertSerializer = rows(
    "Alert", Alert, "One thing that waits for a person, with what to do.",
    "id", "code", "subject", "cause", "severity", "request_name=request.request_name?", "site", "schedd", "pool", "text", "since",
    "last_seen", "ended_at", "count", "owner", "acknowledged_by", "acknowledged_at", "silenced_until", "silenced_by",
    "silence_reason",
    means=Computed(lambda row: words_of(row.code).means, column="code", help_text="what it says"),
    todo=Computed(lambda row: words_of(row.code).todo, column="code", help_text="what to do"),
    runbook_url=Computed(lambda row: runbook_url(row.code), column="code", help_text="where the runbook says more, or empty"),
)  # fmt: skip
AlertChannelSerializer = rows(
    "AlertChannel", AlertChannel, "Where alerts may be sent, and how that goes.",
    "id", "name", "kind", "address", "secret", "digest", "heartbeat", "enabled", "failures", "failing_since", "last_error",
    "sent_at", "created_at", "created_by",
)  # fmt: skip
AlertRouteSerializer = rows(
    "AlertRoute", AlertRoute, "Which alerts go to a channel: all that is given must fit.",
    "id", "channel=channel.name", "code", "severity", "campaign", "site", "request_name", "reason", "actor", "created_at",
)  # fmt: skip


class AlertFilters(django_filters.FilterSet):
    """Each narrows the list; all together must hold."""

    open = TrueFalseFilter(method=whether(Q(ended_at=None)), help_text="whether it goes on")
    code = TextFilter(max_length=60)
    cause = TextFilter(max_length=200)
    severity = ChoicesFilter(choices=Severity.choices)
    request = TextFilter(field_name="request__request_name", max_length=255, help_text="request name")
    campaign = TextFilter(field_name="request__campaign", max_length=100)
    site = TextFilter(max_length=100)
    schedd = TextFilter(max_length=255)
    owner = TextFilter(max_length=150)
    owned = TrueFalseFilter(method=whether(~Q(owner="")), help_text="whether someone has it")
    silenced = TrueFalseFilter(method="filter_silenced", help_text="whether nothing is sent about it now")
    since_from = since("since")
    since_until = until("since")

    def filter_silenced(self, queryset: QuerySet[Alert], name: str, value: bool) -> QuerySet[Alert]:
        """Those that are silent now, or the others."""
        silent = {"silenced_until__gt": clock.now()}
        return queryset.filter(**silent) if value else queryset.exclude(**silent)


class AlertViewSet(RowsViewSet):
    """What waits for a person, and what has."""

    queryset = alerts_shown()
    serializer_class = AlertSerializer
    filterset_class = AlertFilters
    ordering = ("-id",)
    ordering_fields = ("id", "since", "code")

    def compute(self, lines: list[dict[str, object]]) -> None:
        """What it says, and what to do."""
        for line in lines:
            code = str(line["code"])
            line |= {"means": words_of(code).means, "todo": words_of(code).todo, "runbook_url": runbook_url(code)}


class AlertChannelFilters(django_filters.FilterSet):
    """By kind and whether it is in use."""

    kind = ChoicesFilter(choices=ChannelKind.choices)
    enabled = TrueFalseFilter()


class AlertChannelViewSet(RowsViewSet):
    """Where alerts may be sent."""

    queryset = channels_shown()
    serializer_class = AlertChannelSerializer
    filterset_class = AlertChannelFilters
    ordering = ("name",)
    ordering_fields = ("name",)


class AlertRouteFilters(django_filters.FilterSet):
    """By channel."""

    channel = TextFilter(field_name="channel__name", max_length=100)


class AlertRouteViewSet(RowsViewSet):
    """Which alerts go where."""

    queryset = routes_shown()
    serializer_class = AlertRouteSerializer
    filterset_class = AlertRouteFilters
    ordering = ("id",)
    ordering_fields = ("id",)


#: What was removed, as it was.
CHANNEL_ANSWERS = {"remove": (AlertChannelSerializer, lambda row, made, given: row)}
ROUTE_ANSWERS = {"remove": (AlertRouteSerializer, lambda row, made, given: row)}
