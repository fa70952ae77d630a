"""The life cycle's tick (spec 4.2): one leader polls every few seconds, and runs a cycle once a minute.

A poll admits requests, if anything has changed for them, hands out the evaluations that are due, and once a minute has the
state of alerts sent; a cycle observes every schedd, polling while one is silent, looks at the queue even if nothing has changed,
and does what is rare.

Missed, doubled or late ticks are harmless: everything is re-read from rows, and each request's lease lets one evaluation in. What
has not changed is not looked at; a sweep over what was not looked at for long counts what would have been forgotten (ADR 0013).
"""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.db import connection

from dags_app.services.activity import DagActivity
from requests_app.admission.queue import admit, admit_if_changed, report_pass_broken
from requests_app.feed import publish
from requests_app.lease import due_now
from requests_app.lifecycle.alert_conditions import alerts_check
from requests_app.lifecycle.credentials import credentials_watch
from requests_app.lifecycle.draining import drains_go_on
from requests_app.lifecycle.evaluator import BATCH, IN_STEPS
from requests_app.lifecycle.failing import mark_failing
from requests_app.lifecycle.leader import Leadership, leading
from requests_app.lifecycle.progress import progress_sample
from requests_app.lifecycle.retention import rows_expire
from requests_app.lifecycle.sampling import samples_take
from requests_app.lifecycle.watching import dags_follow, schedds_watch
from requests_app.models import EVALUATED, LEADER_LEASE, Lease, RequestStatus
from requests_app.notifying.leading import EVERY_SECONDS, FromLeader
from requests_app.service_level import SHORT_CYCLE_SECONDS, cycle_pause_seconds, level, service_judge, signals
from requests_app.services.invalidation import superseded_take_back
from requests_app.services.reconciling import reconciling
from requests_app.services.stopping import left_blocks_end
from sites_app.services import site_bans_expire, sites_drained
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.metrics.row_counts import counts_fold
from wms2.metrics.series import CYCLE_SECONDS, CYCLES_TOTAL
from wms2.runtime import clock
from wms2.runtime.due import mark_due
from wms2.runtime.levels import Level
from wms2.runtime.locks import DATABASE_AWAY, Fenced, unless_locked
from wms2.runtime.notify import EVALUATE_DUE, RUN_CYCLE, RUN_EFFECTS, notify
from wms2.work.failing import task_failed
from wms2.work.workers import pools_reconcile

log = structlog.get_logger(__name__)
#: Of this process; after a restart everything has moved once.
_ACTIVITY = DagActivity()
#: Of this process: calls to channels that are under way.
ALERTS = FromLeader()
#: How far this host's clock was off the database's at this process's last cycle.
_SKEWS: deque[float] = deque(maxlen=1)
#: So many workers at most are called at a time; each takes a batch of requests after the other.
MOST_HINTS = 8
#: Statuses in which a forgotten wake costs ten minutes at most, with the cycle and the workers behind this.
_SOON_SWEPT, _SOON_SWEPT_AFTER = [RequestStatus.SUBMITTED.value, RequestStatus.ACTIVE.value], timedelta(minutes=8)
_GIVE_LEASES = """
INSERT INTO evaluation_leases (request_id, due_at, sweep, found, owner, epoch)
SELECT id, NULL, false, '', '', 0 FROM requests
WHERE status = ANY(%(evaluated)s) AND NOT EXISTS (SELECT FROM evaluation_leases lease WHERE lease.request_id = requests.id)
ON CONFLICT DO NOTHING
"""
_SWEEP = """
UPDATE evaluation_leases lease SET due_at = %(now)s, sweep = true FROM requests
WHERE requests.id = lease.request_id AND requests.status = ANY(%(evaluated)s)
  AND (lease.evaluated_at IS NULL OR lease.evaluated_at < %(long_ago)s OR requests.status = ANY(%(in_steps)s)
    OR lease.evaluated_at < %(a_while_ago)s AND requests.status = ANY(%(soon_swept)s))
  AND lease.expires_at IS NULL
  AND (lease.due_at IS NULL OR lease.due_at > %(soon)s)
"""


def run_cycle(*, force: bool = False) -> bool:
    """Poll if this node leads, after a cycle if one is due; True when that ran."""
    with leading() as leadership:
        if leadership is None:
            CYCLES_TOTAL.labels("not_leader").inc()
            return False
        due, started, broken = False, time.monotonic(), list[Exception]()
        try:
            with reconciling(leadership.fenced) as whole:
                # ticks come more often than cycles, so that a standby takes over quickly
                last = Lease.objects.values_list("data", flat=True).get(name=LEADER_LEASE).get("cycle_started_epoch", -math.inf)
                now_level, since_last = level(), abs(clock.now().timestamp() - float(last))  # the clock may have been set back
                due = force or whole or since_last >= cycle_pause_seconds(now_level) * 0.9
                if due:
                    broken = _cycle(leadership, now_level, since_last, 0 if whole else conf().sweep_seconds)
                _poll(leadership)
                if broken:
                    raise broken[0]
        except LeaseLost as error:
            CYCLES_TOTAL.labels("deposed").inc()
            log.warning("cycle gave way", why=str(error))
            return False
        except Exception as error:  # the next tick starts anew; nothing is kept in memory
            CYCLES_TOTAL.labels("error").inc()
            task_failed(RUN_CYCLE, error)
            log.exception("cycle failed")
            return False
        if not due:
            return False
        CYCLES_TOTAL.labels("ok").inc()
        CYCLE_SECONDS.observe(time.monotonic() - started)
        return True


def _cycle(leadership: Leadership, now_level: Level, since_last: float, sweep_seconds: float) -> list[Exception]:
    """Each step once; what broke of them. ``since_last``: seconds since the last one began, here or elsewhere."""
    broken: list[Exception] = []
    fenced = leadership.fenced

    def poll() -> None:
        with _step(broken, "poll"):
            _poll(leadership)

    now, pause = clock.now(), cycle_pause_seconds(now_level)
    leadership.renew(cycle_started_at=now.isoformat(), cycle_started_epoch=now.timestamp())
    steps: dict[str, Callable[[], object]] = {
        "counts": counts_fold,
        "counts of campaigns": lambda: counts_fold("campaign_counts", "campaign"),
        "drains": lambda: sites_drained(fenced),
        "bans": lambda: site_bans_expire(fenced),
        "replaced outputs": lambda: superseded_take_back(fenced),
        "blocks of ended requests": lambda: left_blocks_end(fenced),
        "workers": lambda: pools_reconcile(fenced),
        "retention": lambda: rows_expire(leadership) if now_level is Level.NORMAL else 0,
        "credentials": lambda: credentials_watch(leadership),
        "schedds": lambda: schedds_watch(leadership, poll),
        "units at once": lambda: dags_follow(leadership, poll),
        "drains of schedds": lambda: drains_go_on(fenced),
        "progress": lambda: progress_sample(fenced),
        "samples": lambda: samples_take(fenced),
        "failing": lambda: mark_failing(fenced),
        "admission": lambda: _admit(admit, fenced),
        "alerts": lambda: alerts_check(fenced),
    }
    for what, act in steps.items():
        with _step(broken, what):
            act()
    swept = 0
    with _step(broken, "sweep"):
        swept = sweep(fenced, sweep_seconds)
    notify(RUN_EFFECTS)
    ended = clock.now()
    late_cycles = max(0.0, since_last - pause) / max(pause, SHORT_CYCLE_SECONDS) if math.isfinite(since_last) else 0.0
    with _step(broken, "service level"):
        measured = signals(ended, (ended - now).total_seconds())
        service_judge(measured, late_cycles=late_cycles, jump_seconds=_clock_jump(), fenced=fenced)
    leadership.renew(cycle_ended_at=ended.isoformat(), swept=swept, seconds=round((ended - now).total_seconds(), 3))
    return broken


@contextmanager
def _step(broken: list[Exception], what: str) -> Iterator[None]:
    """If one is locked out or breaks, the others are still done, unless the lease or the database is lost."""
    try:
        with unless_locked(what):
            yield
    except (LeaseLost, *DATABASE_AWAY):
        raise
    except Exception as error:
        log.exception("step of the cycle failed", step=what)
        broken.append(error)


def _clock_jump() -> float:
    """By how much this host's clock moved against the database's since this process's last cycle (seconds)."""
    skew = clock.skew_seconds()
    moved = abs(skew - _SKEWS[0]) if _SKEWS else 0.0
    _SKEWS.append(skew)
    return moved


def _poll(leadership: Leadership) -> None:
    """What has moved, who starts next, and who is to be looked at; where one of these breaks, the others are done first."""
    broken: list[Exception] = []
    with _step(broken, "moved DAGs"):
        _report_moves(leadership)
    with _step(broken, "admission"):
        _admit(admit_if_changed, leadership.fenced)
    with _step(broken, "events"):
        publish()
    with _step(broken, "alerts sent"):
        ALERTS.poll(partial(_alerts_due, leadership))
    due = len(due_now(BATCH * MOST_HINTS))
    for _ in range(math.ceil(due / BATCH)):
        notify(EVALUATE_DUE)
    if broken:
        raise broken[0]


def _alerts_due(leadership: Leadership, now: datetime) -> bool:
    """Whether states were not sent within the last minute, by whichever process led; if so, that they are now."""
    last = Lease.objects.values_list("data", flat=True).get(name=LEADER_LEASE).get("alerts_sent_epoch", -math.inf)
    if abs(now.timestamp() - float(last)) < EVERY_SECONDS * 0.9:
        return False
    leadership.renew(alerts_sent_epoch=now.timestamp())
    return True


def _admit(act: Callable[..., int], fenced: Fenced) -> None:
    """A pass, or what it breaks by, on those that wait for it."""
    try:
        act(fenced=fenced)
    except (LeaseLost, *DATABASE_AWAY):
        raise
    except Exception as error:
        report_pass_broken(error, fenced=fenced)
        raise


def _report_moves(leadership: Leadership) -> None:
    """Wake the requests in whose DAG's directory something was written; if that fails, the next answer of the schedd does."""
    moved: defaultdict[str, list[uuid.UUID]] = defaultdict(list)
    for request_id, why in _ACTIVITY.check():
        moved[why].append(request_id)
    if moved:
        with leadership.fenced():
            for why, request_ids in moved.items():
                mark_due(request_ids, why)


def sweep(fenced: Fenced, seconds: float | None = None) -> int:
    """Have what was not evaluated for so long (``sweep_seconds``; less in statuses in which much happens) looked at, although
    nothing says that it is due; how many.

    Due within a cycle is not forgotten; a request whose lease is missing is, and one in the middle of a step, which each cycle
    evaluates: rows of a restored database may say another time.
    """
    with fenced(), connection.cursor() as cursor:
        now = clock.now()
        values: dict[str, Any] = {
            "now": now,
            "long_ago": now - timedelta(seconds=conf().sweep_seconds if seconds is None else seconds),
            "a_while_ago": now - _SOON_SWEPT_AFTER,
            "soon_swept": _SOON_SWEPT,
            "soon": now + timedelta(seconds=conf().cycle_seconds),
            "evaluated": list(EVALUATED),
            "in_steps": list(IN_STEPS),
        }
        cursor.execute(_GIVE_LEASES, values)
        cursor.execute(_SWEEP, values)
        return int(cursor.rowcount)
