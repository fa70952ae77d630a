"""The rows of alerts: one place raises and ends them, and writes ``alert_code`` of requests, the newest open one. A change of the
request's status ends all of them (``requests_app.states``).

Owns the rows; not what is worth an alert (evaluations call ``requests_app.alerts``, the leader's cycle looks at conditions), nor
who hears of it (``requests_app.notifying``).
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from requests_app.models import Alert, Request, Severity
from wms2.runtime import clock

#: Codes of evaluations that are not a warning.
SEVERITIES = {
    "ledger_violation": Severity.CRITICAL,
    "dark_files": Severity.CRITICAL,
    "unmerged_unprotected": Severity.CRITICAL,
    "outcome_unknown": Severity.CRITICAL,
    "forgotten": Severity.INFO,
    "numbers_abandoned": Severity.INFO,
    "lumis_refused": Severity.INFO,
}
MOST_TEXT = 4000


class AlertSubject(NamedTuple):
    """What an alert is about beside its request; ``cause``: what it has in common with others of its code, by default the site
    or schedd."""

    site: str = ""
    schedd: str = ""
    cause: str = ""

    @property
    def common(self) -> str:
        """By which alerts of one code are shown and sent together."""
        return (self.cause or self.site or self.schedd)[:200]


NOWHERE = AlertSubject()


def alert_raise(request: Request, code: str, text: str, where: AlertSubject = NOWHERE) -> bool:
    """The alert of a request as it is now, and shown on it; whether it is a new one."""
    now = clock.now()
    values = {"text": text[:MOST_TEXT], "last_seen": now, "cause": where.common, "site": where.site, "schedd": where.schedd}
    # who has the others of its code and cause has this one, too, and it is as silent as they are
    alike = Alert.objects.filter(code=code, cause=where.common, ended_at=None)
    with transaction.atomic():
        _, new = Alert.objects.update_or_create(
            code=code, subject=request.request_name, ended_at=None, defaults=values,
            create_defaults={
                **values, "request": request, "since": now, "severity": SEVERITIES.get(code, Severity.WARNING),
                **inherited(alike.order_by("id").first() if where.common else None, now),
            },
        )  # fmt: skip
        show_newest(request)
    return new


def alert_end(request: Request, code: str) -> bool:
    """One of them is over; whether there was one."""
    rows = Alert.objects.filter(request=request.pk, code=code, condition=False, ended_at=None)
    with transaction.atomic():
        ended = rows.update(ended_at=clock.now()) > 0
        # a former release shows an alert without having a row of it
        shown = Request.objects.filter(pk=request.pk, alert_code=code).exists()
        if ended or shown:
            show_newest(request)
    return ended or shown


def show_newest(request: Request) -> None:
    """Write the newest open alert into the request's row, and here."""
    rows = Alert.objects.filter(request=request.pk, ended_at=None, condition=False).order_by("-since", "-id")
    code, since = rows.values_list("code", "since").first() or ("", None)
    Request.objects.filter(pk=request.pk).update(alert_code=code[:50], alerted_at=since)
    request.alert_code, request.alerted_at = code[:50], since


def inherited(other: Alert | None, now: datetime) -> dict[str, object]:
    """What a new alert has from another one of its code and cause."""
    if other is None:
        return {}
    found: dict[str, object] = {}
    if other.owner:
        found |= {"owner": other.owner, "acknowledged_by": other.acknowledged_by, "acknowledged_at": other.acknowledged_at}
    if other.silenced_until is not None and other.silenced_until > now:
        names = ("silenced_until", "silenced_by", "silence_reason")
        found |= {name: getattr(other, name) for name in names}
    return found
