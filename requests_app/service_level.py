"""How much the service takes on (ADR 0028): levels by durable signals, the operators' switch, patience under own trouble.

NORMAL, STRAINED (the cycle is stretched, a task that ``can_wait`` is skipped), CLOSED (nothing new starts; what runs is finished,
stopped and registered). The leader's cycle judges; all others read the row. Not here: what a process refuses
(``wms2.web.shedding``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import Min, Q, QuerySet

from outputs_app.effects.executor import due_effects
from outputs_app.models import EffectState
from requests_app.feed import emit_event
from requests_app.models import SERVICE_LEVEL, EvaluationLease, ServiceLevel
from sites_app.models import Health, Schedd, ScheddState
from sites_app.schedds import MAX_DUTY_CYCLE
from wms2.actions import AlreadyDone
from wms2.audit import audit, audited
from wms2.celery import broker_answers
from wms2.conf import conf
from wms2.metrics.series import ALERTS_TOTAL
from wms2.models import Wake
from wms2.runtime import clock
from wms2.runtime.levels import CLOSES_AT, EASED, KnownLevel, Level
from wms2.runtime.locks import Fenced
from wms2.web.shedding import database_seconds
from wms2.work.workers import pool_problems

#: A request that is due and waits longer to be evaluated strains the service; five times longer closes it for new work.
_OVERDUE_EVALUATION_SECONDS = 600.0
#: The same for a registration that is due and waits to be tried.
_OVERDUE_EFFECT_SECONDS = 3600.0
#: The same for what a trivial query to the database takes.
_SLOW_DATABASE_SECONDS = 0.2

ACTOR = "lifecycle"
#: Cycles in a row that must speak for more, or for less: more at once, less one level at a time.
RISES, FALLS = 2, 3
#: Where cycles are short, one that takes so long is no trouble (seconds).
SHORT_CYCLE_SECONDS = 30.0
#: A cycle is due so many times later while strained.
STRAINED_CYCLES = 2.0
MOST_TROUBLE = 8
#: The host's clock was set, or it slept, if it moved by so much against the database's between two cycles (seconds).
CLOCK_JUMP_SECONDS = 2.0
#: Signals that rise when nothing takes what is due.
_WORKERS = frozenset({"evaluations", "effects"})
_RANKS = (Level.NORMAL, Level.STRAINED, Level.CLOSED)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Judged:
    """A level, and how many cycles in a row have spoken for another: more (positive) or less (negative)."""

    level: Level
    looks: int = 0


def judge(now: Judged, pressure: float) -> Judged:
    """The level after one more cycle whose worst signal is ``pressure`` times its limit. Pure; does not flap.

    Between ``EASED`` times a level's threshold and the threshold nothing changes.
    """
    rank, up, down = _RANKS.index(now.level), _rank(pressure), _rank(pressure / EASED)
    if up > rank:
        looks = max(now.looks, 0) + 1
        return Judged(_RANKS[up]) if looks >= RISES else Judged(now.level, looks)
    if down < rank:
        looks = min(now.looks, 0) - 1
        return Judged(_RANKS[rank - 1]) if looks <= -FALLS else Judged(now.level, looks)
    return Judged(now.level)


def _rank(pressure: float) -> int:
    return (pressure >= 1) + (pressure >= CLOSES_AT)


def troubled(score: int, *, late_cycles: float, jump_seconds: float, load_per_cpu: float) -> tuple[int, list[str]]:
    """The score of the host's own trouble after one more cycle, 0 to 8, and what added to it; a calm cycle takes one off. Pure.

    Args:
        late_cycles: how many times the pause between two cycles was longer than it should be; a host that hung, or was starved.
    """
    most = conf().trouble_load_per_cpu
    found = [
        (min(4, int(late_cycles)), f"the last cycle began {late_cycles:.1f} cycles too late") if late_cycles >= 1 else None,
        (2, f"the clock jumped by {jump_seconds:.1f} s") if jump_seconds >= CLOCK_JUMP_SECONDS else None,
        (min(4, int(load_per_cpu / most)), f"load {load_per_cpu:.1f} per CPU") if most and load_per_cpu >= most else None,
    ]
    added = [each for each in found if each is not None]
    if not added:
        return max(0, score - 1), []
    return min(MOST_TROUBLE, score + sum(points for points, _ in added)), [why for _, why in added]


def stretch_of(score: int) -> float:
    """Factor for time limits: 1 to 3."""
    return 1 + score / 4


def service_rows() -> QuerySet[ServiceLevel]:
    """The one row, made if it is not there."""
    ServiceLevel.objects.get_or_create(pk=SERVICE_LEVEL)
    return ServiceLevel.objects.filter(pk=SERVICE_LEVEL)


def service() -> ServiceLevel:
    """The row, or one as it is before the first cycle."""
    return service_row().first() or ServiceLevel()


def service_row() -> QuerySet[ServiceLevel]:
    """None before the first cycle."""
    return ServiceLevel.objects.filter(pk=SERVICE_LEVEL)


def read() -> KnownLevel:
    """For ``wms2.runtime.levels``."""
    row = service()
    return KnownLevel(row.known, row.reason, row.no_new_work, stretch_of(row.trouble))


def no_new_work() -> str:
    """Why nothing new may start, the operators' switch or the level CLOSED; empty when it may. One query."""
    return service().no_new_work


def level() -> Level:
    """As the last cycle judged it. One query."""
    return service().known


def cycle_pause_seconds(now: Level) -> float:
    """From one cycle to the next at a level."""
    return conf().cycle_seconds * (1.0 if now is Level.NORMAL else STRAINED_CYCLES)


def signals(now: datetime, cycle_took_seconds: float) -> dict[str, float]:
    """How many times its limit each signal is; what several hosts share, not what one of them feels."""
    free = EvaluationLease.objects.filter(Q(expires_at=None) | Q(expires_at__lt=now))  # others are being evaluated
    due = free.filter(due_at__lte=now).aggregate(first=Min("due_at"))["first"]
    woken = Wake.objects.filter(request_id__in=free.values("request")).aggregate(first=Min("at"))["first"]
    # what waits for another effect or for a person is no worker's to do
    effect = due_effects().filter(state=EffectState.PENDING).aggregate(first=Min("next_attempt_at"))["first"]
    return {
        "cycle": cycle_took_seconds / max(conf().cycle_seconds, SHORT_CYCLE_SECONDS),
        "evaluations": max(age_seconds(due, now), age_seconds(woken, now)) / _OVERDUE_EVALUATION_SECONDS,
        "effects": age_seconds(effect, now) / _OVERDUE_EFFECT_SECONDS,
        "database": min(database_seconds() for _ in range(3)) / _SLOW_DATABASE_SECONDS,
        "broker": 0.0 if broker_answers() else 1.0,
        # of those that may get DAGs: all of them strain, and never close by themselves
        "schedds": len(_busy()) / max(Schedd.objects.filter(state=ScheddState.ENABLED).count(), 1),
    }


def _busy() -> dict[str, str]:
    """Schedds that cannot keep up. One that has as many DAGs as it may is as it should be."""
    busy = Schedd.objects.filter(state=ScheddState.ENABLED, health=Health.BUSY, duty_cycle__gt=MAX_DUTY_CYCLE)
    return dict(busy.values_list("name", "health_reason"))


def age_seconds(since: datetime | None, now: datetime) -> float:
    """How long ago it began; 0 for what has not."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def service_judge(measured: Mapping[str, float], *, late_cycles: float, jump_seconds: float, fenced: Fenced) -> Level:
    """Write what one cycle has seen; a change goes to the log, the alert's counter, an event and the audit."""
    now, load = clock.now(), os.getloadavg()[0] / (os.cpu_count() or 1)
    with fenced():
        row = _locked()
        old = row.known
        said = judge(Judged(old, row.looks), max(measured.values()))
        row.trouble, why = troubled(row.trouble, late_cycles=late_cycles, jump_seconds=jump_seconds, load_per_cpu=load)
        row.trouble_reason = "; ".join(why) or (row.trouble_reason if row.trouble else "")
        row.level, row.looks, row.updated_at = said.level, said.looks, now
        row.signals = {name: round(value, 3) for name, value in measured.items()}
        row.reason = "" if said.level is Level.NORMAL else _cause(measured) or row.reason
        if said.level is not old:
            row.since = now
            _report(old, said.level, row)
        row.save()
    return said.level


def _cause(measured: Mapping[str, float]) -> str:
    """The worst signals, with what is behind them where that is known: pools that are stopped or have no workers, schedds."""
    worst = sorted((name for name, value in measured.items() if value >= EASED), key=lambda name: -measured[name])
    cause = ", ".join(f"{name} at {measured[name]:.1f} times its limit" for name in worst)
    behind = [f"worker pool {each.queue}: {each}" for each in pool_problems()] if _WORKERS.intersection(worst) else []
    behind += [f"schedd {name}: {reason}" for name, reason in _busy().items()] if "schedds" in worst else []
    return f"{cause} ({'; '.join(behind)})" if behind else cause


def _report(old: Level, new: Level, row: ServiceLevel) -> None:
    worse = _RANKS.index(new) > _RANKS.index(old)
    reason = row.reason or "all signals are calm"
    audit(
        actor=ACTOR, action="service_level", target=SERVICE_LEVEL, target_type="service", reason=reason,
        old=old.value, new=new.value, signals=row.signals,
    )  # fmt: skip
    emit_event("service.level", None, **{"from": old.value}, to=new.value, reason=reason)
    if worse:
        ALERTS_TOTAL.labels(f"service_{new.value}").inc()
    (log.error if worse else log.warning)("the service's level changed", old=old.value, new=new.value, reason=reason)


def _locked() -> ServiceLevel:
    return service_rows().select_for_update(no_key=True).get()


def new_work_stop(*, service: ServiceLevel, actor: str, reason: str) -> None:
    """Start nothing new until an operator allows it again, over restarts; what runs goes on. The newest reason counts."""
    _switch(actor, reason, "new_work_stop", stopped_by=actor, stopped_reason=reason, stopped_at=clock.now())


def new_work_allow(*, service: ServiceLevel, actor: str, reason: str) -> None:
    """Let new work start again, as far as the level does."""
    _switch(actor, reason, "new_work_allow", stopped_by="", stopped_reason="", stopped_at=None)


def _switch(actor: str, reason: str, action: str, **changes: object) -> None:
    with transaction.atomic(), audited(
        actor=actor, action=action, target=SERVICE_LEVEL, target_type="service", reason=reason
    ):  # fmt: skip
        _locked()
        ServiceLevel.objects.filter(pk=SERVICE_LEVEL).update(**changes)
        emit_event(f"service.{action}", actor=actor, reason=reason)


def allow_refused(row: ServiceLevel) -> str:
    """Why there is nothing to allow; empty if there is."""
    return "" if row.stopped_by else AlreadyDone("New work is not switched off.")
