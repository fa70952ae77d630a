"""The admission queue as people see it: each request's place, and what it waits for (spec 7.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Case, Q, QuerySet, Value, When

from requests_app.admission import eligible, queue
from requests_app.limits import CHANGEABLE, limit_int
from requests_app.models import Limit, Request
from requests_app.placement import slots_used
from wms2 import clock
from wms2.conf import conf


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """Slots and the queue's length. ``next_in_queue`` is the first that is not pausing after a failure."""

    active_dags: int
    max_active_dags: int
    queued_workflows: int
    pausing: int
    next_in_queue: Request | None


@dataclass(frozen=True, slots=True)
class QueuedRow:
    """One queued request. ``place`` counts from 1; None while it pauses after a failure and is passed over."""

    place: int | None
    request: Request


@dataclass(frozen=True, slots=True)
class LimitInForce:
    """A setting that operators may change, its default, and who changed it."""

    name: str
    value: float
    default: float
    changed_by: str
    reason: str
    changed_at: datetime | None


def admission_state(queued: int) -> AdmissionState:
    """With ``queued`` requests in the queue, which the caller knows (``kept_counts``); those that pause are counted."""
    return AdmissionState(
        active_dags=slots_used(),
        max_active_dags=limit_int("max_active_dags"),
        queued_workflows=queued,
        pausing=queue().filter(next_attempt_at__gt=clock.in_sql()).order_by().count(),
        next_in_queue=_shown(eligible()).first(),
    )


def queue_rows() -> QuerySet[Any]:
    """Queued requests in the order of admission, those that pause after a failure last."""
    running = Q(next_attempt_at__gt=clock.in_sql())
    pauses = Case(When(running, then=Value(True)), default=Value(False), output_field=BooleanField())
    return _shown(queue()).annotate(pauses=pauses).order_by("pauses", "-urgent", "-priority", "queued_at", "id")


def placed(rows: list[Any], offset: int) -> list[QueuedRow]:
    """Rows of ``queue_rows`` with their places; ``offset`` rows come before them."""
    return [QueuedRow(None if row.pauses else offset + index, row) for index, row in enumerate(rows, start=1)]


def config_in_force() -> list[LimitInForce]:
    """Every limit that can be changed at run time, by name."""
    rows = {row.name: row for row in Limit.objects.filter(name__in=CHANGEABLE)}
    return [_limit(name, rows.get(name)) for name in sorted(CHANGEABLE)]


def _limit(name: str, row: Limit | None) -> LimitInForce:
    default = getattr(conf(), name)
    if row is None:
        return LimitInForce(name, default, default, "", "", None)
    return LimitInForce(name, type(default)(row.value), default, row.actor, row.reason, row.updated_at)


def _shown(rows: QuerySet[Request]) -> QuerySet[Request]:
    return rows.only(
        "id", "request_name", "priority", "urgent", "queued_at", "status_since", "campaign", "requestor", "waiting_for",
        "next_attempt_at", "failed_attempts", "last_error",
    )  # fmt: skip
