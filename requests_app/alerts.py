"""Alerts: something waits for a person, and nothing is skipped because of it (spec 4.2; docs/design/model.md, Time-outs).

An alert is a log line, a counter, an event in the feed, and ``alert_code`` on the request until its status changes or its cause
is gone.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.utils import timezone

from outputs_app.selectors import STUCK, effect_stuck
from requests_app.feed import emit_event
from requests_app.lease import Evaluation
from requests_app.models import EVALUATED, Event, Request
from wms2.metrics.series import ALERTS_TOTAL

log = structlog.get_logger(__name__)
RAISED, OVER = "alert", "alert_over"
#: How ``waiting_for`` begins when a step of WMS2 itself broke.
BROKEN = "a repair of WMS2; its step breaks, and is tried again each cycle:"


def alert(request: Request, code: str, message: str) -> None:
    """Raise an alert once per code and status, also when alerts of two codes take turns; a repeat only says which is the last."""
    if request.alert_code == code:
        return
    events = Event.objects.filter(request=request, kind__in=(RAISED, OVER), data__code=code, at__gte=request.status_since)
    newest = events.order_by("-id").values_list("kind", flat=True).first()
    request.alert_code = code
    if newest == RAISED:
        Request.objects.filter(pk=request.pk).update(alert_code=code, alerted_at=timezone.now())
    else:
        remind(request, code, message)


def remind(request: Request, code: str, message: str) -> None:
    """Raise an alert again each time that it is due, as long as its cause stays."""
    Request.objects.filter(pk=request.pk).update(alert_code=code, alerted_at=timezone.now())
    emit_event(RAISED, request, code=code, message=message)
    ALERTS_TOTAL.labels(code).inc()
    log.error("alert", alert=code, request_name=request.request_name, message=message)


def alert_over(evaluation: Evaluation, *codes: str) -> None:
    """Take the request's alert off if it is one of these, whose cause is gone; the next time it is raised as a new one."""
    if (code := evaluation.request.alert_code) in codes:
        with evaluation.fenced():
            alert_off(evaluation.request, code)


def alert_off(request: Request, code: str) -> None:
    """The same of any request, in the caller's transaction."""
    if Request.objects.filter(pk=request.pk, alert_code=code).update(alert_code="", alerted_at=None):
        request.alert_code, request.alerted_at = "", None
        emit_event(OVER, request, code=code)
        log.info("alert over", alert=code, request_name=request.request_name)


def report_broken(what: str, **which: Any) -> None:
    """Say on the requests ``which`` that a pass over many broke at them; what works again takes it off (``evaluator``)."""
    rows = Request.objects.filter(pk__in=Request.objects.filter(**which).values("pk"))
    rows.update(last_error=what)
    rows.filter(status__in=EVALUATED).update(waiting_for=f"{BROKEN} {what}")


def alert_stuck_effects(evaluation: Evaluation) -> None:
    """A registration or clean-up that only a person can bring on raises an alert in any status, also after its end."""
    stuck = effect_stuck(evaluation.request.pk) if evaluation.stuck else None
    if stuck is not None:
        alert(evaluation.request, f"effect_{stuck.state}", f"{stuck.key}: {stuck.last_error}")
    else:
        alert_over(evaluation, *(f"effect_{state}" for state in STUCK))
