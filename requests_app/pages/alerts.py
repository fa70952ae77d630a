"""The page of alerts: what is open, by cause, most severe first; one cause in full; what has ended; where alerts are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.http import QueryDict

from requests_app.api.alerts import AlertFilters
from requests_app.models import Alert, AlertChannel, Severity
from requests_app.selectors.alert_texts import runbook_url
from requests_app.selectors.alerts import SHOWN, AlertGroup, alerts_together, channels_shown
from wms2.admin.actions import Button, buttons
from wms2.runtime import clock

#: Causes, and alerts of one cause, on a page.
MOST = 50


class Line(NamedTuple):
    """Alerts of one code and cause, with what may be done about them."""

    group: AlertGroup
    operations: Sequence[Button]
    runbook: str


class AlertsPage(NamedTuple):
    """What the address asks for; without ``open``, what goes on. ``each``: the single alerts, where a code is asked for or what
    is over. ``more``: there are others behind those shown."""

    values: Mapping[str, str]
    errors: Mapping[str, Sequence[str]]
    filtered: bool
    over: bool
    lines: Sequence[Line]
    more: bool
    each: Sequence[Alert]
    channels: Sequence[AlertChannel]
    severities: type[Severity] = Severity


def alerts_page(given: QueryDict, user: Any, back: str) -> AlertsPage:
    """Four queries."""
    asked = given.copy()
    asked.setdefault("open", "true")
    filters = AlertFilters(asked, queryset=Alert.objects.all())
    valid = filters.is_valid()
    over = asked["open"] == "false"
    rows: QuerySet[Alert] = filters.qs if valid else Alert.objects.none()
    groups = [] if over or not valid else alerts_together(rows, clock.now(), MOST)
    singly = valid and (over or "code" in given)
    order = ("-ended_at", "-id") if over else ("since", "id")
    return AlertsPage(
        values={name: given.get(name, "") for name in filters.filters},
        errors={name: [str(one) for one in found] for name, found in filters.form.errors.items()},
        filtered=any(name in given for name in filters.filters),
        over=over,
        lines=[Line(group, buttons(user, group.first, back), runbook_url(group.code)) for group in groups[:MOST]],
        more=len(groups) > MOST,
        each=list(rows.select_related("request").only(*SHOWN).order_by(*order)[:MOST]) if singly else [],
        channels=list(channels_shown()),
    )
