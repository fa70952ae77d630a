"""Alerts: something waits for a person, and nothing is skipped because of it (spec 4.2; decisions 2).

An alert is a log line, a counter, an event in the feed, and ``alert_code`` on the request until its status changes.
"""

from __future__ import annotations

import structlog
from django.utils import timezone

from requests_app.models import Event, Request
from wms2.metrics import ALERTS_TOTAL

log = structlog.get_logger(__name__)


def alert(request: Request, code: str, message: str) -> None:
    """Raise an alert once per code and status, also when alerts of two codes take turns; a repeat only says which is the last."""
    if request.alert_code == code:
        return
    told = Event.objects.filter(request=request, kind="alert", data__code=code, at__gte=request.status_since).exists()
    Request.objects.filter(pk=request.pk).update(alert_code=code, alerted_at=timezone.now())
    request.alert_code = code
    if told:
        return
    Event.objects.create(request=request, kind="alert", data={"code": code, "message": message})
    ALERTS_TOTAL.labels(code).inc()
    log.error("alert", alert=code, request_name=request.request_name, message=message)
