"""Alerts: something waits for a person, and nothing is skipped because of it (spec 4.2; docs/design/model.md, Time-outs).

An alert is a row (``requests_app.alert_rows``), a log line, a counter, an event in the feed, and the newest open one is
``alert_code`` on the request, until its status changes or its cause is gone.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.db.models import F, QuerySet

from outputs_app.models import Effect
from outputs_app.selectors import STUCK
from requests_app.alert_rows import NOWHERE, AlertSubject, alert_end, alert_raise
from requests_app.feed import emit_event
from requests_app.lease import Evaluation
from requests_app.models import EVALUATED, Alert, Request
from wms2.metrics.series import ALERTS_TOTAL
from wms2.runtime import clock

log = structlog.get_logger(__name__)
RAISED, OVER = "alert", "alert_over"
#: How ``waiting_for`` begins when a step of WMS2 itself broke.
BROKEN = "a repair of WMS2; its step breaks, and is tried again each cycle:"


def alert(request: Request, code: str, message: str, where: AlertSubject = NOWHERE) -> None:
    """Raise an alert once, until its cause is gone or the status changes; several may be open. Called again it only says what is
    so now."""
    if request.alert_code == code:
        return
    if alert_raise(request, code, message, where):
        _report(request, code, message)


def remind(request: Request, code: str, message: str, where: AlertSubject = NOWHERE) -> None:
    """Raise an alert again each time that it is due, as long as its cause stays."""
    if not alert_raise(request, code, message, where):
        Alert.objects.filter(request=request, code=code, ended_at=None).update(count=F("count") + 1, last_seen=clock.now())
    _report(request, code, message)


def _report(request: Request, code: str, message: str) -> None:
    emit_event(RAISED, request, code=code, message=message)
    ALERTS_TOTAL.labels(code).inc()
    log.error("alert", alert=code, request_name=request.request_name, message=message)


def alert_over(evaluation: Evaluation, *codes: str) -> None:
    """Take the request's alerts off that are of these, whose cause is gone; the next time one is raised as a new one."""
    shown = evaluation.request.alert_code
    if not shown:
        return
    rows = Alert.objects.filter(request=evaluation.request.pk, ended_at=None, condition=False, code__in=codes)
    open_codes = list(rows.order_by("id").values_list("code", flat=True))
    for code in codes:
        if code == shown or code in open_codes:
            with evaluation.fenced():
                alert_off(evaluation.request, code)


def alert_off(request: Request, code: str) -> None:
    """The same of any request, in the caller's transaction."""
    if alert_end(request, code):
        emit_event(OVER, request, code=code)
        log.info("alert over", alert=code, request_name=request.request_name)


def alerted(code: str) -> QuerySet[Request]:
    """Requests that have this alert, whatever else they have."""
    return Request.objects.filter(alerts__code=code, alerts__ended_at=None, alerts__condition=False)


def report_broken(what: str, **which: Any) -> None:
    """Say on the requests ``which`` that a pass over many broke at them; what works again takes it off (``evaluator``)."""
    rows = Request.objects.filter(pk__in=Request.objects.filter(**which).values("pk"))
    rows.update(last_error=what)
    rows.filter(status__in=EVALUATED).update(waiting_for=f"{BROKEN} {what}")


def alert_stuck_effects(evaluation: Evaluation) -> None:
    """A registration or clean-up that only a person can bring on raises an alert in any status, also after its end."""
    wanted = Effect.objects.filter(request_id=evaluation.request.pk, state__in=STUCK, epoch=F("request__epoch"))
    stuck = wanted.order_by("id").first() if evaluation.stuck else None
    alert_over(evaluation, *(f"effect_{state}" for state in STUCK if stuck is None or state != stuck.state))
    if stuck is not None:
        what = f"{stuck.key}: {stuck.last_error}"
        alert(evaluation.request, f"effect_{stuck.state}", what, AlertSubject(cause=stuck.get_kind_display()))
