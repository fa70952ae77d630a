"""Rows that nothing rests on any more go after a time, in portions (ADR 0029).

Owns which rows those are, of the feed, the history of DAGs, schedds and bans, the samples of failures and the audit. What a
request has been (its row, its transitions, work units, files) stays for ever.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import Q, QuerySet

from dags_app.models import DAGHistory, FailureSample
from requests_app.lifecycle.leader import Leadership
from requests_app.lifecycle.watching import RETURNED
from requests_app.models import LEADER_LEASE, TERMINAL, Alert, AlertMessage, Event, Lease, Reconciliation, RequestStatus
from sites_app.models import HealthChange, QueueChange, SiteBan, SystemicAlert
from wms2.conf import conf
from wms2.errors import Wms2Error
from wms2.metrics.series import ROWS_EXPIRED_TOTAL
from wms2.models import AuditEntry, BulkRun, KeptAnswer
from wms2.runtime import clock
from wms2.runtime.passes import row_by_itself

#: For how long answers to calls with an Idempotency-Key are repeated.
_ANSWERS_HOURS = 24.0

log = structlog.get_logger(__name__)
#: Statuses in which no evaluation reads the feed or the history any more.
AT_AN_END = (*TERMINAL, RequestStatus.COMPLETED)
#: Rows of one transaction, and transactions for one table in one cycle: a table that was never shortened takes many cycles.
PORTION, PORTIONS = 2000, 5
#: From the last time that nothing was left to the next look.
PAUSE = timedelta(hours=1)
#: In the data of the leader's lease: when nothing was left.
_DONE_EPOCH = "rows_expired_epoch"


def rows_expire(leadership: Leadership) -> int:
    """Remove a bounded number of expired rows, if an hour has passed or some were left; returns how many.

    Raises:
        LeaseLost: another process leads by now; whole portions are gone, and it goes on with the rest.
    """
    now = clock.now()
    last = Lease.objects.values_list("data", flat=True).get(name=LEADER_LEASE).get(_DONE_EPOCH, 0)
    if abs(now.timestamp() - float(last)) < PAUSE.total_seconds():
        return 0
    removed, broken = dict[str, int](), list[str]()
    for rows in expired(now):
        table = rows.model._meta.db_table
        with row_by_itself("retention", table, broken.append):
            removed[table] = _remove(rows, leadership)
    if broken:  # the others are done; shown as the cycle's failure
        raise Wms2Error(f"old rows not removed: {'; '.join(broken)}")
    left = [table for table, number in removed.items() if number == PORTION * PORTIONS]
    if not left:
        leadership.renew(**{_DONE_EPOCH: now.timestamp()})
    total = sum(removed.values())
    if total:
        log.info("old rows removed", **removed, goes_on_with=left)
    return total


def expired(now: datetime) -> list[QuerySet[Any]]:
    """For each table the rows that may go, of large ones by an index on their time, oldest first; none where all are kept."""
    ours = conf()
    answers = KeptAnswer.objects.filter(at__lt=now - timedelta(hours=_ANSWERS_HOURS))
    found: list[QuerySet[Any]] = [answers.order_by("at")]
    if ours.keep_events_days:
        before = now - timedelta(days=ours.keep_events_days)
        # an alert that stands is in the feed once (``requests_app.alerts``)
        free = _ended("request__", before) & Q(request__alert_code="")
        found.append(Event.objects.filter(Q(request__isnull=True) | free, at__lt=before).order_by("at"))
    if ours.keep_audit_days:
        found.append(AuditEntry.objects.filter(at__lt=now - timedelta(days=ours.keep_audit_days)).order_by("at"))
    if ours.keep_history_days:
        before = now - timedelta(days=ours.keep_history_days)
        of_ended = _ended("dag__workflow__request__", before)
        unsettled = Q(dag__lost_confirmed_at__isnull=False, dag__lost_settled_at__isnull=True)
        history = DAGHistory.objects.filter(of_ended, created_at__lt=before).exclude(unsettled)
        found.append(history.exclude(event_type=RETURNED).order_by("created_at"))  # each is reported once, whenever it comes back
        found.append(FailureSample.objects.filter(of_ended, at__lt=before).order_by("at"))
        found.append(BulkRun.objects.filter(ended_at__lt=before))  # from here on few rows, read whole
        found += [HealthChange.objects.filter(at__lt=before), QueueChange.objects.filter(seen_at__lt=before)]
        found += [Alert.objects.filter(ended_at__lt=before), AlertMessage.objects.filter(created_at__lt=before)]
        found += [SystemicAlert.objects.filter(ended_at__lt=before), Reconciliation.objects.filter(ended_at__lt=before)]
        found.append(SiteBan.objects.filter(Q(expires_at__lt=before) | Q(removed_at__lt=before)))
    return found


def _ended(request: str, before: datetime) -> Q:
    return Q(**{f"{request}status__in": AT_AN_END, f"{request}status_since__lt": before})


def _remove(rows: QuerySet[Any], leadership: Leadership) -> int:
    table, removed = rows.model._meta.db_table, 0
    for _ in range(PORTIONS):
        with leadership.fenced():
            number, _by_model = rows.model._default_manager.filter(pk__in=rows.values("pk")[:PORTION]).delete()
        ROWS_EXPIRED_TOTAL.labels(table).inc(number)
        removed += number
        if number < PORTION:
            break
    return removed
