"""Whether a schedd gets new DAGs, what was last heard of it, and its health. Running DAGs are watched in every state."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction
from pydantic import TypeAdapter, ValidationError

from sites_app.health import Rules, Signals, Verdict, judge
from sites_app.models import BAD_HEALTH, Health, HealthChange, Pool, PoolState, QueueChange, Schedd, ScheddState
from sites_app.submit_roots import root_refused
from wms2.adapters import factory
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import ScheddAd
from wms2.conf import conf
from wms2.runtime.json_columns import mapping
from wms2.runtime.levels import stretched

#: A schedd that works for a larger share of its time is busy: a new DAG goes there only when no other has room.
MAX_DUTY_CYCLE = 0.98
#: A schedd where jobs of ours run and none has ended for so long is degraded.
_STALLED_SECONDS = 4 * 3600.0

log = structlog.get_logger(__name__)
_VERDICT = TypeAdapter(Verdict)


def adapter(schedd: Schedd) -> HtcondorAdapter:
    """How the schedd is asked: by its pool's collector, with its pool's credentials, about its owner's jobs. Reads no row."""
    return factory.htcondor(schedd.name, schedd.pool.collector, schedd.pool.token_dir, schedd.owner)


def as_configured() -> dict[str, Any]:
    """The columns of a schedd that is not configured further."""
    return {"submit_root": str(conf().submit_root), "max_dagman_slots": conf().max_dagman_slots_per_schedd}


def submit_roots() -> set[Path]:
    """Where DAG directories lie, or may have lain: those that are WMS2's own."""
    roots = {conf().submit_root, *map(Path, Schedd.objects.order_by().values_list("submit_root", flat=True))}
    return {root for root in roots if not root_refused(root)}


def state_refused(row: Pool | Schedd, state: PoolState | ScheddState) -> str:
    """Why the pool or schedd cannot be given this state; empty if it can."""
    if row.state == state:
        return f"It is {state.label.lower()} already."
    if isinstance(row, Schedd) and state is ScheddState.ENABLED and row.onboarded_at is None:
        return f"Its checks have not passed ({row.onboarding or 'they were not started'}); start them with Check."
    return ""


def schedd_answered(*, schedd: Schedd, ad: ScheddAd, ours: Signals, now: datetime) -> QueueChange | None:
    """Store an answer, and judge the health. Another birthdate of its queue than before becomes a row of evidence, which is
    returned.

    Args:
        ours: the answer's signals about our own DAGMans and jobs; the others are of ``ad``.
    """
    with transaction.atomic(savepoint=False):
        row = Schedd.objects.select_for_update(no_key=True, of=("self",)).get(pk=schedd.pk)
        old, new = row.job_queue_birthdate, ad.job_queue_birthdate_seconds
        change = None
        if old is not None and new is not None and old != new:
            change = QueueChange.objects.create(
                schedd=row, old_birthdate=old, new_birthdate=new, old_answered_at=row.last_answer_at,
                dagmans_before=row.dagmans_running, seen_at=now,
            )  # fmt: skip
            log.error("schedd has another job queue", schedd=row.name, old_birthdate=old, new_birthdate=new)
        everybodys = max(ours.ours, ad.dagmans or 0)
        signals = replace(
            ours, unheard_seconds=None if ad.heard_at_seconds is None else now.timestamp() - ad.heard_at_seconds,
            accepting=ad.accepting, duty_cycle=ad.duty_cycle, dagmans=everybodys, dagmans_most=row.max_dagman_slots,
            ours_most=ad.owner_dagmans,
            new_queue=f"its job queue is another one than before, of {birthdate_text(new)}" if change else "",
        )  # fmt: skip
        Schedd.objects.filter(pk=row.pk).update(
            asked_at=now, last_answer_at=now, unreachable_since=None, last_error="", collector_says="", version=ad.version,
            job_queue_birthdate=old if new is None else new, dagmans_running=ours.ours, dagmans_others=everybodys - ours.ours,
            owner_dagmans=ad.owner_dagmans, owner=row.owner or ad.owner, duty_cycle=ad.duty_cycle,
            **_judged(row, signals, now),
        )  # fmt: skip
    return change


def schedd_silent(*, schedd: Schedd, error: str, collector_says: str, now: datetime) -> None:
    """Store that it did not answer: no conclusion about what it runs; several times in a row its health changes."""
    with transaction.atomic(savepoint=False):
        row = Schedd.objects.select_for_update(no_key=True, of=("self",)).get(pk=schedd.pk)
        Schedd.objects.filter(pk=row.pk).update(
            asked_at=now, last_error=error, collector_says=collector_says[:300], unreachable_since=row.unreachable_since or now,
            **_judged(row, Signals(silent=f"{error}; {collector_says}" if collector_says else error), now),
        )  # fmt: skip


def schedd_broke(schedd: Schedd, what: str) -> None:
    """Store on its row that a pass over the schedds failed at it."""
    Schedd.objects.filter(pk=schedd.pk).update(last_error=what)


def _judged(row: Schedd, signals: Signals, now: datetime) -> dict[str, Any]:
    """The columns of its health after this look; a change is a row of its history."""
    known = row.health if row.health in Health.values else Health.HEALTHY  # a later release's word
    now_known = {"health": known, "since": row.health_since}
    try:
        before = _VERDICT.validate_python({**mapping(row.health_memory), **now_known})
    except ValidationError:  # what it remembers is no memory of this release: it is judged anew
        before = _VERDICT.validate_python(now_known)
    rules = Rules(MAX_DUTY_CYCLE, stretched(conf().schedd_suspicion_seconds), stretched(_STALLED_SECONDS))
    after = judge(signals, before, now, rules)
    if after.health != before.health:
        HealthChange.objects.create(
            schedd=row, at=now, old=before.health, new=after.health, reason=after.reason, signals=asdict(signals)
        )
        bad = after.health in BAD_HEALTH
        (log.error if bad else log.info)("schedd health", schedd=row.name, old=before.health, new=after.health, why=after.reason)
    memory = _VERDICT.dump_python(after, mode="json", exclude={"health", "since"})
    return {"health": after.health, "health_since": after.since, "health_reason": after.reported, "health_memory": memory}


def birthdate_text(seconds: int | None) -> str:
    """A queue's birthdate as a moment."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC" if seconds is not None else "unknown"
