"""The life cycle's tick (spec 4.2): one leader polls every few seconds, and runs a cycle once a minute.

A poll admits requests and hands out the evaluations that are due; a cycle observes every schedd, and looks after what is rare.

Missed, doubled or late ticks are harmless: everything is re-read from rows, and each request's lease lets one evaluation in. What
has not changed is not looked at; a sweep over what was not looked at for long counts what would have been forgotten (ADR 0061).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from django.db import OperationalError, connection
from django.db.models import Exists, OuterRef, Q

from dags_app.models import DAG, LIVE_DAG
from dags_app.services.orphans import orphans_look
from dags_app.services.watch import schedd_observe
from requests_app.admission import admit
from requests_app.lease import ACTOR, due_now
from requests_app.lifecycle.evaluator import BATCH
from requests_app.lifecycle.leader import Leadership, leading
from requests_app.lifecycle.orphans import orphans_remove
from requests_app.models import EVALUATED, Lease, Request
from requests_app.services.invalidation import superseded_take_back
from sites_app.models import Schedd, ScheddState
from sites_app.services import site_bans_expire
from sites_app.statuses import sites_drained
from wms2 import clock
from wms2.audit import audit
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.locks import Fenced, lock_refused
from wms2.metrics import CYCLE_SECONDS, CYCLES_TOTAL, LOCKS_REFUSED_TOTAL
from wms2.nudge import EVALUATE_DUE, RUN_EFFECTS, nudge
from wms2.row_counts import counts_fold
from wms2.wakes import wake

log = structlog.get_logger(__name__)
#: So many workers at most are called at a time; each takes a batch of requests after the other.
MOST_HINTS = 8
_GIVE_LEASES = """
INSERT INTO evaluation_leases (request_id, due_at, sweep, owner, epoch)
SELECT id, NULL, false, '', 0 FROM requests
WHERE status = ANY(%(evaluated)s) AND NOT EXISTS (SELECT FROM evaluation_leases lease WHERE lease.request_id = requests.id)
ON CONFLICT DO NOTHING
"""
_SWEEP = """
UPDATE evaluation_leases lease SET due_at = %(now)s, sweep = true FROM requests
WHERE requests.id = lease.request_id AND requests.status = ANY(%(evaluated)s)
  AND (lease.evaluated_at IS NULL OR lease.evaluated_at < %(long_ago)s) AND lease.expires_at IS NULL
  AND (lease.due_at IS NULL OR lease.due_at > %(soon)s)
"""


def run_cycle(*, force: bool = False) -> bool:
    """Poll if this node leads, after a cycle if one is due; True when that ran."""
    with leading() as leadership:
        if leadership is None:
            CYCLES_TOTAL.labels("not_leader").inc()
            return False
        due = force or _due()
        started = time.monotonic()
        try:
            if due:
                _cycle(leadership)
            _poll(leadership)
        except LeaseLost as error:
            CYCLES_TOTAL.labels("deposed").inc()
            log.warning("cycle gave way", why=str(error))
            return False
        except Exception:  # the next tick starts anew; nothing is kept in memory
            CYCLES_TOTAL.labels("error").inc()
            log.exception("cycle failed")
            return False
        if not due:
            return False
        CYCLES_TOTAL.labels("ok").inc()
        CYCLE_SECONDS.observe(time.monotonic() - started)
        return True


def _due() -> bool:
    """Ticks come more often than cycles, so that a standby takes over quickly."""
    last = Lease.objects.values_list("data", flat=True).get(name="lifecycle").get("cycle_started_epoch", 0)
    return clock.now().timestamp() - float(last) >= conf().cycle_seconds * 0.9


def schedds_to_watch() -> list[Schedd]:
    """All that get DAGs or have live ones; where only lost ones might come back, once in each suspicion window is enough."""
    here = DAG.objects.filter(schedd=OuterRef("pk"))  # each over its partial index: DAGs that ever ended are many
    used = Q(state__in=(ScheddState.ENABLED, ScheddState.DRAINING)) | Exists(here.filter(status__in=LIVE_DAG))
    long_ago = clock.now() - timedelta(seconds=conf().schedd_suspicion_seconds)
    due = Q(asked_at__isnull=True) | Q(asked_at__lt=long_ago)
    lost = Exists(here.filter(lost_confirmed_at__isnull=False, lost_settled_at__isnull=True))
    return list(Schedd.objects.filter(used | (due & lost)).order_by("pk"))


def schedd_watch(schedd: Schedd, fenced: Fenced) -> None:
    """Observe one schedd; evidence of a lost queue goes into the audit, jobs that must not run are removed.

    Raises:
        LeaseLost: somebody else leads by now.
    """
    seen = schedd_observe(schedd=schedd, instance=conf().instance, fenced=fenced)
    if seen.change is not None:
        with fenced():
            audit(
                actor=ACTOR, action="schedd_queue_changed", target=schedd.name, target_type="schedd",
                reason="the schedd answers with another job queue; what was in the former one may be lost",
                old_birthdate=seen.change.old_birthdate, new_birthdate=seen.change.new_birthdate,
            )  # fmt: skip
    orphans_remove(schedd, seen.orphans, fenced)
    with fenced():
        here = Request.objects.filter(workflow__dags__schedd=schedd, workflow__dags__status__in=LIVE_DAG)
        wake(here.values_list("pk", flat=True), "observed")
    now = clock.now()
    look_again = now - timedelta(seconds=conf().stray_look_seconds)
    if seen.answered and (schedd.orphans_asked_at is None or schedd.orphans_asked_at <= look_again):
        orphans_look(schedd=schedd, now=now, fenced=fenced)


def _cycle(leadership: Leadership) -> None:
    now = clock.now()
    leadership.renew(cycle_started_at=now.isoformat(), cycle_started_epoch=now.timestamp())
    _unless_locked("counts", counts_fold)
    _unless_locked("drains", partial(sites_drained, leadership.fenced))
    _unless_locked("bans", partial(site_bans_expire, leadership.fenced))
    _unless_locked("replaced outputs", partial(superseded_take_back, leadership.fenced))
    for schedd in schedds_to_watch():
        _unless_locked(f"schedd {schedd.name}", partial(schedd_watch, schedd, leadership.fenced))
    swept = sweep(leadership.fenced)
    ended = clock.now()
    leadership.renew(cycle_ended_at=ended.isoformat(), swept=swept, seconds=round((ended - now).total_seconds(), 3))


def _poll(leadership: Leadership) -> None:
    """Who starts next, and who is to be looked at."""
    _unless_locked("admission", partial(admit, fenced=leadership.fenced))
    due = len(due_now(BATCH * MOST_HINTS))
    for _ in range(math.ceil(due / BATCH)):
        nudge(EVALUATE_DUE)
    nudge(RUN_EFFECTS)


def sweep(fenced: Fenced) -> int:
    """Have what was not evaluated for ``sweep_seconds`` looked at, although nothing says that it is due; how many.

    Due within a cycle is not forgotten; a request whose lease is missing is.
    """
    with fenced(), connection.cursor() as cursor:
        now = clock.now()
        values: dict[str, Any] = {
            "now": now,
            "long_ago": now - timedelta(seconds=conf().sweep_seconds),
            "soon": now + timedelta(seconds=conf().cycle_seconds),
            "evaluated": list(EVALUATED),
        }
        cursor.execute(_GIVE_LEASES, values)
        cursor.execute(_SWEEP, values)
        return int(cursor.rowcount)


def _unless_locked(what: str, step: Callable[[], object]) -> None:
    """One row that somebody keeps locked must not stop the cycle: that step is done in the next one."""
    try:
        step()
    except OperationalError as error:
        if not lock_refused(error):
            raise
        LOCKS_REFUSED_TOTAL.labels("cycle").inc()
        log.warning("locked by somebody else, the next cycle tries again", what=what, error=str(error).splitlines()[0])
