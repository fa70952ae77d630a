"""The life cycle's tick (spec 4.2): one leader observes every schedd once, hands out evaluations, runs effects.

Missed, doubled or late ticks are harmless: everything is re-read from rows, and each request's lease lets one evaluation in.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import structlog
from django.db import OperationalError
from django.db.models import Exists, F, OuterRef, Q

from dags_app.models import DAG, LIVE_DAG
from dags_app.services.orphans import orphans_look
from dags_app.services.watch import schedd_observe
from requests_app.lease import ACTOR
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
from wms2.nudge import EVALUATE_REQUEST, RUN_EFFECTS, nudge

log = structlog.get_logger(__name__)
#: Hints are given for so long between two renewals of the lease.
_RENEWAL_SECONDS = 5.0


def run_cycle(*, force: bool = False) -> bool:
    """Run a cycle if this node leads and one is due; True when it ran."""
    with leading() as leadership:
        if leadership is None:
            CYCLES_TOTAL.labels("not_leader").inc()
            return False
        if not force and not _due():
            return False
        started = time.monotonic()
        try:
            _cycle(leadership)
        except LeaseLost as error:
            CYCLES_TOTAL.labels("deposed").inc()
            log.warning("cycle gave way", why=str(error))
            return False
        except Exception:  # the next tick starts anew; nothing is kept in memory
            CYCLES_TOTAL.labels("error").inc()
            log.exception("cycle failed")
            return False
        CYCLES_TOTAL.labels("ok").inc()
        CYCLE_SECONDS.observe(time.monotonic() - started)
        return True


def _due() -> bool:
    """Ticks come more often than cycles, so that a standby takes over quickly."""
    last = Lease.objects.values_list("data", flat=True).get(name="lifecycle").get("cycle_started_epoch", 0)
    return clock.now().timestamp() - float(last) >= conf().cycle_seconds * 0.9


def requests_to_evaluate() -> list[uuid.UUID]:
    """Those that waited longest for an evaluation come first.

    Hints that nobody takes in time are dropped; with more requests than the workers manage in that time, any fixed order would
    leave its end without a turn for ever. Who starts next is admission's word, not this.
    """
    rows = Request.objects.filter(status__in=EVALUATED).order_by(F("evaluated_at").asc(nulls_first=True), "created_at")
    return list(rows.values_list("pk", flat=True))


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
    now = clock.now()
    look_again = now - timedelta(seconds=conf().stray_look_seconds)
    if seen.answered and (schedd.orphans_asked_at is None or schedd.orphans_asked_at <= look_again):
        orphans_look(schedd=schedd, now=now, fenced=fenced)


def _cycle(leadership: Leadership) -> None:
    now = clock.now()
    leadership.renew(cycle_started_at=now.isoformat(), cycle_started_epoch=now.timestamp())
    _unless_locked("drains", partial(sites_drained, leadership.fenced))
    _unless_locked("bans", partial(site_bans_expire, leadership.fenced))
    _unless_locked("replaced outputs", partial(superseded_take_back, leadership.fenced))
    for schedd in schedds_to_watch():
        _unless_locked(f"schedd {schedd.name}", partial(schedd_watch, schedd, leadership.fenced))
    requests = requests_to_evaluate()
    renewed = time.monotonic()
    for pk in requests:
        if time.monotonic() - renewed > _RENEWAL_SECONDS:  # thousands of hints, or a slow broker, take longer than a lease
            leadership.renew()
            renewed = time.monotonic()
        nudge(EVALUATE_REQUEST, str(pk))
    nudge(RUN_EFFECTS)
    ended = clock.now()
    leadership.renew(cycle_ended_at=ended.isoformat(), requests=len(requests), seconds=round((ended - now).total_seconds(), 3))


def _unless_locked(what: str, step: Callable[[], object]) -> None:
    """One row that somebody keeps locked must not stop the cycle: that step is done in the next one."""
    try:
        step()
    except OperationalError as error:
        if not lock_refused(error):
            raise
        LOCKS_REFUSED_TOTAL.labels("cycle").inc()
        log.warning("locked by somebody else, the next cycle tries again", what=what, error=str(error).splitlines()[0])
