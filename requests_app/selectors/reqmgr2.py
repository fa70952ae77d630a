"""How it stands with ReqMgr2: when it was last asked, and what of it an operator must look at."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from requests_app.models import Lease, ReqMgr2Request
from wms2.conf import conf
from wms2.runtime import clock

#: The row that says when ReqMgr2 was last asked with success.
POLL = "reqmgr2"
#: Problems that are shown; with more, something larger is wrong.
MOST = 50


class ReqMgr2State(NamedTuple):
    """``polled_at``: the last poll that succeeded; ``age_seconds`` since then, before it since the first that failed; None
    when it was not asked yet or is not followed."""

    follows: bool
    reports: bool
    polled_at: datetime | None
    age_seconds: float | None
    error: str
    problems: QuerySet[ReqMgr2Request]


def reqmgr2_state() -> ReqMgr2State:
    """One query, and one for the problems where they are looked at."""
    return reqmgr2_of(Lease.objects.filter(name=POLL).first())


def reqmgr2_of(row: Lease | None) -> ReqMgr2State:
    """As the lease of its poll says; a query for the problems where they are looked at."""
    polled = row.heartbeat_at if row else None
    since = (polled or row.acquired_at) if row and conf().reqmgr2_follow else None
    return ReqMgr2State(
        follows=conf().reqmgr2_follow,
        reports=conf().reqmgr2_report,
        polled_at=polled,
        age_seconds=max(0.0, (clock.now() - since).total_seconds()) if since else None,
        error=str(row.data.get("error", "")) if row else "",
        problems=reqmgr2_problems().select_related("request").defer("request__request_data")[:MOST],
    )


def reqmgr2_problems() -> QuerySet[ReqMgr2Request]:
    """Requests there that cannot be taken or followed."""
    return ReqMgr2Request.objects.exclude(problem="")
