"""Conditions that wait for a person become alerts, by a pass of the leader's cycle: found, found again, found no more.

Owns what is looked at; the words are ``selectors.alert_texts.CONDITIONS``. A fixed number of queries, and of each kind ``MOST``:
with more, something larger is wrong. It also brings rows and ``alert_code`` together where a former release wrote that alone.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import structlog
from django.db.models import Count, Exists, Min, OuterRef, Q

from dags_app.selectors import schedds_counted
from outputs_app.models import CaseState, Drift, DriftState, IntegrityCase
from requests_app.alert_rows import MOST_TEXT, inherited
from requests_app.models import Alert, DeadLetterKind, HoldCode, Request, RequestStatus, Severity
from requests_app.selectors.alert_texts import CONDITIONS
from requests_app.selectors.alerts import channels_failing, watchers_without_address
from requests_app.selectors.lifecycle import lifecycle_state, rucio_account_problems
from requests_app.selectors.reqmgr2 import reqmgr2_state
from requests_app.selectors.summary import dead_letter_counts
from requests_app.service_level import service
from requests_app.services.dead_letters import ADVICE
from sites_app.guard import alerts_open
from sites_app.models import Health
from sites_app.services import sites_avoided
from wms2.metrics.series import ALERTS_TOTAL
from wms2.runtime import clock
from wms2.runtime.levels import Level
from wms2.runtime.locks import Fenced
from wms2.web.formatting import counted, exact, word
from wms2.work.workers import pool_problems

log = structlog.get_logger(__name__)
MOST = 2000
#: ReqMgr2 is silent when it was not polled with success for so long.
_REQMGR2_SECONDS = 1800.0


class Found(NamedTuple):
    """One condition that holds."""

    code: str
    subject: str
    text: str
    cause: str = ""
    request_id: uuid.UUID | None = None
    site: str = ""
    schedd: str = ""
    pool: str = ""
    since: datetime | None = None

    @property
    def values(self) -> dict[str, object]:
        """Columns that may change while it holds."""
        return {
            "text": self.text[:MOST_TEXT], "cause": self.cause[:200], "severity": CONDITIONS[self.code].severity,
            "site": self.site[:100], "schedd": self.schedd[:255], "pool": self.pool[:100],
        }  # fmt: skip


def alerts_check(fenced: Fenced) -> None:
    """Begin, renew and end the alerts of conditions."""
    found = {(each.code, each.subject[:300]): each for each in chain(_requests(), _schedds(), _sites(), _service(), _work())}
    now = clock.now()
    with fenced():
        rows = {(row.code, row.subject): row for row in Alert.objects.filter(ended_at=None, condition=True)}
        over = [row.pk for key, row in rows.items() if key not in found]
        Alert.objects.filter(pk__in=over).update(ended_at=now)
        Alert.objects.filter(pk__in=[row.pk for key, row in rows.items() if key in found]).update(last_seen=now)
        _change(rows, found)
        begun = _begin({key: each for key, each in found.items() if key not in rows}, now)
        _follow_requests(now)
    if begun or over:
        log.info("alerts of conditions", begun=begun, over=len(over), open=len(found))


def _requests() -> Iterator[Found]:
    held = Request.objects.filter(status=RequestStatus.HELD).order_by("status_since", "pk")
    columns = ("pk", "request_name", "hold_code", "hold_reason", "status_since")
    for pk, name, code, why, since in held.values_list(*columns)[:MOST]:
        kind = "held_by_operator" if code == HoldCode.OPERATOR else "request_held"
        yield Found(kind, name, why, str(word(HoldCode, code).label), pk, since=since)
    drift = Drift.objects.filter(state=DriftState.UNSETTLED).order_by("request__request_name")
    grouped = drift.values_list("request", "request__request_name").annotate(number=Count("id"), first=Min("name"))
    for pk, name, number, first in grouped[:MOST]:
        yield Found("drift_unsettled", name or "no request", f"{counted(number, 'difference')}, e.g. {first}", "", pk)
    cases = IntegrityCase.objects.filter(state=CaseState.NEW).order_by("site").values_list("site")
    for site, number, requests in cases.annotate(number=Count("id"), requests=Count("request", distinct=True))[:MOST]:
        words = f"{counted(number, 'case')} of {counted(requests, 'request')}"
        yield Found("cases_new", site or "no site", words, site, site=site)


def _schedds() -> Iterator[Found]:
    unwell = Q(in_use=True) & (Q(unreachable_since__isnull=False) | Q(health=Health.DEGRADED))
    for row in schedds_counted().filter(unwell | ~Q(orphans=[])).order_by("pk"):
        where: dict[str, Any] = {"schedd": row.name, "pool": row.pool_id, "cause": row.name}
        if row.in_use and row.unreachable_since is not None:
            said = f"silent since {exact(row.unreachable_since)}, {counted(row.live_dags, 'live DAG')}"
            yield Found("schedd_silent", row.name, said, **where, since=row.unreachable_since)
        elif row.in_use and row.health == Health.DEGRADED:
            yield Found("schedd_degraded", row.name, row.health_reason, **where, since=row.health_since)
        if strays := row.orphans_reported:
            said = counted(len(strays), "DAG that no row knows", "DAGs that no row knows")
            yield Found("schedd_strays", row.name, said, **where)
    for each in alerts_open():
        code = "new_work_held" if each.holds else "systemic_trouble"
        yield Found(code, each.pool or "all pools", each.reason, each.pool, pool=each.pool, since=each.began_at)


def _sites() -> Iterator[Found]:
    for site, why in sorted(sites_avoided(None).items())[:MOST]:
        yield Found("site_closed", site, why, site, site=site)


def _service() -> Iterator[Found]:
    level = service()
    if level.stopped_by:
        yield Found("new_work_stopped", "new work", f"by {level.stopped_by}: {level.stopped_reason}")
    if level.level == Level.CLOSED:
        yield Found("service_closed", "service", level.reason)
    there = reqmgr2_state()
    if there.follows and (there.age_seconds or 0.0) > _REQMGR2_SECONDS:
        yield Found("reqmgr2_silent", "ReqMgr2", there.error or "no poll has succeeded")
    for row in there.problems if there.follows else ():
        yield Found("reqmgr2_problem", row.name or f"clone {row.pk}", row.problem, request_id=row.request_id)
    if problems := rucio_account_problems():
        yield Found("rucio_account", "Rucio account", "; ".join(problems))
    for each in lifecycle_state().credentials_ending:
        what = each.problem or f"ends {exact(each.ends_at)}"
        yield Found("credential_ends", each.name, f"{each.path}: {what}", each.name)


def _work() -> Iterator[Found]:
    for pool in pool_problems():
        yield Found("workers_missing", pool.queue, str(pool), pool.queue)
    for kind, number in sorted(dead_letter_counts().items()):
        label = DeadLetterKind(kind).label
        yield Found("dead_letters", label, f"{number} of them. {ADVICE[DeadLetterKind(kind)]}", label)
    for user, number, first in watchers_without_address()[:MOST]:
        watched = f"{counted(number, 'request')}, e.g. {first}" if number > 1 else first
        yield Found("watcher_without_address", user, f"watches {watched}, and no mail can be sent")
    for channel in channels_failing():
        since = exact(channel.failing_since)
        yield Found(
            "channel_failing", channel.name, f"since {since}: {channel.last_error}", channel.name, since=channel.failing_since
        )


def _change(rows: Mapping[tuple[str, str], Alert], found: Mapping[tuple[str, str], Found]) -> None:
    changed, names = list[Alert](), set[str]()
    for key, each in found.items():
        row = rows.get(key)
        if row is None or all(getattr(row, name) == value for name, value in each.values.items()):
            continue
        for name, value in each.values.items():
            setattr(row, name, value)
        names |= each.values.keys()
        changed.append(row)
    if changed:
        Alert.objects.bulk_update(changed, sorted(names), batch_size=500)


def _begin(found: Mapping[tuple[str, str], Found], now: datetime) -> int:
    if not found:
        return 0
    codes = {code for code, _ in found}
    others = Alert.objects.filter(code__in=codes, ended_at=None).exclude(cause="").order_by("-id")
    alike = {(row.code, row.cause): row for row in others}
    rows = [
        Alert(
            code=code, subject=subject, condition=True, since=each.since or now, last_seen=now, request_id=each.request_id,
            **each.values, **inherited(alike.get((code, each.cause)), now),
        )
        for (code, subject), each in found.items()
    ]  # fmt: skip
    Alert.objects.bulk_create(rows, ignore_conflicts=True)
    for code, number in Counter(code for code, _ in found).items():
        ALERTS_TOTAL.labels(code).inc(number)
        first = next(each for each in found.values() if each.code == code)
        log.error("alert", alert=code, number=number, subject=first.subject, message=first.text)
    return len(found)


def _follow_requests(now: datetime) -> None:
    """A former release writes ``alert_code`` and no rows: what it raised gets one, what it took off is over."""
    ours = Alert.objects.filter(condition=False, ended_at=None)
    ours.filter(Exists(Request.objects.filter(pk=OuterRef("request"), alert_code=""))).update(ended_at=now)
    known = Alert.objects.filter(request=OuterRef("pk"), ended_at=None, condition=False)
    bare = Request.objects.exclude(alert_code="").filter(~Exists(known)).order_by("-created_at")
    rows = [
        Alert(code=code, subject=name, request_id=pk, since=at or now, last_seen=now, severity=Severity.WARNING)
        for pk, name, code, at in bare.values_list("pk", "request_name", "alert_code", "alerted_at")[:MOST]
    ]
    Alert.objects.bulk_create(rows, ignore_conflicts=True)
