"""Where a DAG goes, and with how many units at once (spec 2.4; docs/design/control.md, Admission).

How many units a DAG runs at once is its share of the jobs that may wait, divided by the jobs in a unit (ADR 0004): estimated at
admission, settled when its jobs are known and its schedd is chosen. A schedd is measured in DAGMan slots: an outer DAG and these
units; what was admitted reserves its slots until its DAG is there (ADR 0004).
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog
from django.db.models import Count, F, QuerySet, Sum
from django.db.models.fields.json import KT

from dags_app.counts import jobs_per_unit
from dags_app.models import DAG, LIVE_DAG, DAGStatus
from dags_app.planning.throttles import Throttles
from requests_app.admission.fair_share import Running, Share, share_of
from requests_app.admission.moves import Move, move_of
from requests_app.alerts import report_broken
from requests_app.limits import limits_now
from requests_app.models import Request, RequestStatus
from requests_app.work.overrides import overrides_of, throttles_of
from sites_app.guard import EVERYWHERE, systemic_trouble, systemic_troubles
from sites_app.models import Health, Schedd, ScheddState
from wms2.conf import Limits
from wms2.runtime.locks import Fenced, LockKey, lock_until_commit
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
#: Statuses that hold an admission slot although their DAG row may not exist yet.
TAKING_SLOT = (RequestStatus.PLANNING, RequestStatus.PARTIAL)
#: Units at once of a DAG that runs change by more than this part, or not.
_NOT_WORTH = 0.1
_LANDING = KT("jobs__roles__landing__idle")


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the request's DAG goes, with how many DAGMan slots, and why there; without a schedd, what it waits for."""

    schedd: Schedd | None
    waits_for: str = ""
    slots: int = 0
    placement: dict[str, object] | None = None
    throttles: Throttles | None = None

    @property
    def units(self) -> int:
        """That run at once."""
        return self.slots - 1


def taking_slot() -> QuerySet[Request]:
    """Requests that keep or have taken a slot without a live DAG row."""
    return Request.objects.filter(status__in=TAKING_SLOT).exclude(workflow__dags__status__in=LIVE_DAG)


def slots_used() -> int:
    """Live DAGs plus requests that hold a slot without one."""
    return DAG.objects.filter(status__in=LIVE_DAG).count() + taking_slot().count()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Units that a request's DAG should run at once, of ``jobs_per_unit`` each, and what that follows from."""

    units: int
    jobs_per_unit: int
    throttles: Throttles
    share: Share
    move: Move | None = None
    pools: tuple[str, ...] = ()  # that it may go to; empty: all

    @classmethod
    def of(cls, request: Request, dag: DAG | None, limits: Limits, share: Share) -> Wanted:
        """By the jobs of a DAG: its own, or as long as that is not planned, those of the one before."""
        jobs = _jobs_per_unit(dag, limits)
        left = dag.total_work_units - dag.units_done if dag is not None and dag.status == DAGStatus.READY else None
        throttles = throttles_of(request, limits.dag_max_merge_groups)
        pools = overrides_of(request).pools or ()
        return cls(share.units(throttles, jobs, left), jobs, throttles, share, move_of(request), pools)

    @property
    def evidence(self) -> dict[str, object]:
        """For the record of the placement."""
        return {
            "jobs_per_unit": self.jobs_per_unit, "share_jobs": self.share.jobs, "sharers": self.share.sharers,
            "idle_taken": self.share.taken, "idle_budget": self.share.budget, "units_wanted": self.units,
            "limits": self.throttles.as_dict(),
        }  # fmt: skip


def _jobs_per_unit(dag: DAG | None, limits: Limits) -> int:
    return jobs_per_unit(dag) if dag is not None and dag.total_work_units else limits.jobs_per_work_unit


def running_now(limits: Limits, *, apart_from: Request | None = None) -> list[Running]:
    """What the budget is shared with: live DAGs as they were counted, and what is about to be one; ``apart_from`` a request."""
    here, coming = DAG.objects.filter(status__in=LIVE_DAG), taking_slot()
    if apart_from is not None:
        here, coming = here.exclude(workflow__request=apart_from), coming.exclude(pk=apart_from.pk)
    rows = here.only("status", "nodes_idle", "observed_at", "merge_groups", "node_counts", "total_work_units")
    found = [_counted(dag, limits) for dag in rows.annotate(landing=_LANDING)]
    units = coming.filter(reserved_slots__gt=0).values_list("reserved_slots", flat=True)
    return found + [Running(None, 0, slots - 1, limits.jobs_per_work_unit) for slots in units]


def _counted(dag: Any, limits: Limits) -> Running:
    idle = dag.nodes_idle if dag.observed_at is not None else None
    landing, jobs = 0, limits.jobs_per_work_unit  # one that cannot be counted takes its part all the same
    with row_by_itself("admission", dag.pk, partial(report_broken, workflow__dags=dag.pk)):
        landing, jobs = int(dag.landing or 0), _jobs_per_unit(dag, limits)
    return Running(idle, landing, dag.merge_groups, jobs)


def units_follow(fenced: Fenced) -> list[DAG]:
    """Settle anew how many units at once the DAGs that run may have, as their shares are now; small changes are left (ADR 0004).

    Returns those whose DAGMan reports another number and must be changed: a call may be lost, and a restarted DAGMan begins with
    its first.
    """
    running = DAG.objects.filter(status=DAGStatus.RUNNING, observed__max_jobs__gt=0, missing_since=None, unanswered_since=None)
    if not running.exists():
        return []
    with fenced():
        lock_until_commit(LockKey.ADMISSION)
        limits, room = limits_now(), Room.now()
        share = share_of(limits.idle_job_budget, running_now(limits), sharers=slots_used())
        rows = running.select_related("schedd__pool", "workflow__request").defer("workflow__psets")
        dags = list(rows.annotate(landing=_LANDING))
        for dag in dags:
            with row_by_itself("units at once", dag.pk, partial(report_broken, workflow__dags=dag.pk)):
                _follow(dag, limits, room, share)
    return [dag for dag in dags if dag.observed["max_jobs"] != dag.merge_groups]


def _follow(dag: Any, limits: Limits, room: Room, share: Share) -> None:
    counted, before = _counted(dag, limits), dag.merge_groups
    in_force = throttles_of(dag.workflow.request, limits.dag_max_merge_groups)
    most = [each.most_units(counted.jobs_per_unit) for each in (Throttles.of(dag.throttles), in_force)]
    free = room.left(dag.schedd)
    wanted = share.follows(counted, int(dag.observed.get("units_running") or 0))
    wanted = max(min(wanted, *most, dag.total_work_units - dag.units_done, before + max(free, 0)), 1)
    if abs(wanted - before) > before * _NOT_WORTH:
        DAG.objects.filter(pk=dag.pk).update(merge_groups=wanted)
        dag.merge_groups = wanted
        room.slots[dag.schedd_id] += wanted - before
        log.info("units at once", request_name=dag.workflow.request_id, dag_id=str(dag.pk), old=before, new=wanted)


def schedd_for(request: Request, dag: DAG) -> Decision:
    """Where the DAG of a request that is being planned goes now, and with how many units at once: a rescue to the schedd that has
    its directory; others to the one where they have reserved slots, else where most room is.

    Call under the admission lock, and write ``reserved_schedd`` and ``reserved_slots`` in the same transaction: the next
    request must count them.
    """
    reserved = request.reserved_schedd_id if request.status in TAKING_SLOT else None
    limits = limits_now()
    share = share_of(limits.idle_job_budget, running_now(limits, apart_from=request), sharers=slots_used())
    wanted = Wanted.of(request, dag, limits, share)
    promised = request.reserved_slots if reserved is not None else 0
    if trouble := systemic_trouble():
        return Decision(None, trouble)
    rescued, room = dag_to_rescue(request), Room.now(apart_from=request)
    if rescued is None:  # it is planned into a directory, which not all see
        planned_for = next((schedd.directories for schedd in room.schedds if schedd.pk == reserved), None)
        room.schedds = [schedd for schedd in room.schedds if planned_for in (None, schedd.directories)]
    return place(rescued, room, wanted, reserved=reserved, promised=promised)


def place(rescued: DAG | None, room: Room, wanted: Wanted, *, reserved: int | None, promised: int = 0) -> Decision:
    """A rescue that is to be moved, or whose schedd is taken out of service, goes to one that sees the same directories, if one
    is in service; what operators move, or drain so, or what may no longer go to its pool, else leaves its round and is planned
    anew for another. Where not all units that are wanted have room, at least half must, or the slots that were ``promised``.
    """
    share = wanted.share
    if share.spent:
        return Decision(None, f"the idle-job budget: {share.taken} of {share.budget} jobs wait for a slot, or soon will")
    decision = _placed(rescued, room, wanted, reserved, promised)
    if decision.schedd is None:
        return decision
    return replace(decision, placement=(decision.placement or {}) | wanted.evidence, throttles=wanted.throttles)


def _placed(rescued: DAG | None, room: Room, wanted: Wanted, reserved: int | None, promised: int) -> Decision:
    half = 1 + math.ceil(wanted.units / 2)
    needed = _Needed(min(half, promised or half), 1 + wanted.units, wanted.pools)
    schedd = rescued.schedd if rescued is not None else None
    move = _leaving(schedd, wanted, room)
    allowed = [each for each in room.schedds if move is None or move.allows(each)]
    if rescued is None or schedd is None:
        return _moved(_lightest(room, allowed, needed, reserved), move, room)
    if not rescued.throttles:
        needed = _Needed(1 + rescued.merge_groups, 1 + rescued.merge_groups, wanted.pools)  # as it was rendered
    if move is not None:
        # where what is left is planned anew
        far = allowed if move is wanted.move or not move.drain or schedd.drain_at_once else []
        near = [each for each in allowed if each.directories == schedd.directories]
        there = usable(room, near, wanted.pools) or usable(room, far, wanted.pools)
        if there or not move.drain:
            return _moved(_lightest(room, there or allowed, needed, reserved), move, room)
    # alone, a draining schedd keeps what it has until it is done
    why = room.obstacle(schedd, needed, (ScheddState.ENABLED, ScheddState.DRAINING))
    if why:
        return Decision(None, f"its schedd, which has its DAG's directory: {schedd.name}: {why}")
    return Decision(schedd, "", room.given(schedd, needed), {"chosen": schedd.name, "why": "its directory lies there"})


def usable(room: Room, schedds: Iterable[Schedd], pools: tuple[str, ...] = ()) -> list[Schedd]:
    """Those that take DAGs of who may go to these pools, whether they have room now or not."""
    return [schedd for schedd in schedds if not room.obstacle(schedd, _Needed(0, 0, pools), (ScheddState.ENABLED,))]


def nowhere_else(
    here: Schedd, to: Schedd | None = None, pools: tuple[str, ...] = (), schedds: Sequence[Schedd] | None = None
) -> str:
    """Why no other schedd, or not that one, could take what is here and may go to these ``pools``; empty if one could, now or
    when it has room. ``schedds``: all, where they have been read.
    """
    # what runs there now does not matter
    room = Room(list(Schedd.objects.order_by("pk") if schedds is None else schedds))
    others = [each for each in room.schedds if (each == to if to is not None else each.pk != here.pk)]
    if usable(room, others, pools):
        return ""
    whys = "; ".join(f"{each.name}: {room.obstacle(each, _Needed(0, 0, pools), (ScheddState.ENABLED,))}" for each in others)
    return f"No other schedd can take it: {whys or 'no other is known'}."


def _leaving(schedd: Schedd | None, wanted: Wanted, room: Room) -> Move | None:
    """What operators want, or their drain as long as it lasts; else what the request's pools, or its schedd's state, ask for."""
    draining = {each.pk for each in room.schedds if each.state == ScheddState.DRAINING}
    if wanted.move is not None and (not wanted.move.drain or wanted.move.away in draining):
        return wanted.move
    if schedd is None:
        return None
    if wanted.pools and schedd.pool_id not in wanted.pools:
        return Move(schedd.pk, None, "lifecycle", f"it may go to {' or '.join(wanted.pools)} only")
    if schedd.state == ScheddState.ENABLED and not schedd.unusable:
        return None
    why = schedd.drain_reason or schedd.unusable or f"it is {schedd.get_state_display().lower()}"
    return Move(schedd.pk, None, schedd.drain_actor or "lifecycle", why, drain=True)


def _moved(decision: Decision, move: Move | None, room: Room) -> Decision:
    """With the actor, origin and reason of the move in the record."""
    if move is None:
        return decision
    home = next((schedd.name for schedd in room.schedds if schedd.pk == move.away), "")
    if decision.schedd is None:
        waits_for = decision.waits_for
        if move.to is not None and all(schedd.pk != move.to for schedd in room.schedds):
            waits_for = f"another Move, with another target or none: schedd {move.to_name}, where it was to go, was removed"
        return replace(decision, waits_for=f"{waits_for} (it is moved away from {home} by {move.actor}: {move.reason})")
    moved = {"from": home, "to": decision.schedd.name, "by": move.actor, "why": move.reason}
    return replace(decision, placement={**(decision.placement or {}), "moved": moved})


def dag_to_rescue(request: Request) -> DAG | None:
    """The DAG that ran last in the request's open round: unless a person chose otherwise, its rescue is next."""
    return dags_to_rescue([request]).get(request.pk)


def dags_to_rescue(requests: Collection[Request]) -> dict[uuid.UUID, DAG]:
    """The same for many, by the request's key."""
    rows = DAG.objects.filter(
        round__workflow__request__in=requests, round__closed_at__isnull=True, submitted_at__isnull=False
    ).order_by("fence")
    found = rows.select_related("schedd__pool").annotate(request_key=F("round__workflow__request__pk"))
    return {dag.request_key: dag for dag in found}


@dataclass(frozen=True, slots=True)
class _Needed:
    """DAGMan slots: with fewer than ``least`` it waits, more than ``most`` it does not use; in ``pools``, or in any."""

    least: int
    most: int
    pools: tuple[str, ...] = ()


@dataclass(slots=True)
class Room:
    """The schedds, and what each has: live DAGs as they were rendered, and requests that were admitted there and whose DAG is not
    there yet.
    """

    schedds: list[Schedd]
    dags: Counter[int] = field(default_factory=Counter)  # outer ones, by schedd
    slots: Counter[int] = field(default_factory=Counter)  # DAGMan slots of these and of the units they may run
    held: Mapping[str, str] = field(default_factory=dict)  # pools that take nothing new, and why

    @classmethod
    def now(cls, *, apart_from: Request | None = None) -> Room:
        """As it is; ``apart_from`` a request whose own reservation does not stand in its way."""
        room = cls(list(Schedd.objects.order_by("pk")), held=systemic_troubles())
        there = DAG.objects.filter(status__in=LIVE_DAG, schedd__isnull=False)
        dags = there.order_by().values_list("schedd").annotate(n=Count("pk"), slots=Sum(1 + F("merge_groups")))
        coming = Request.objects.filter(status__in=TAKING_SLOT, reserved_schedd__isnull=False)
        if apart_from is not None:
            coming = coming.exclude(pk=apart_from.pk)
        coming = coming.exclude(pk__in=there.values("workflow__request__pk"))
        reserved = coming.order_by().values_list("reserved_schedd").annotate(n=Count("pk"), slots=Sum("reserved_slots"))
        for schedd, number, slots in [*dags, *reserved]:
            room.dags[schedd] += number
            room.slots[schedd] += slots
        return room

    def take(self, schedd: Schedd, slots: int) -> None:
        """One DAG more goes there."""
        self.dags[schedd.pk] += 1
        self.slots[schedd.pk] += slots

    def left(self, schedd: Schedd) -> int:
        """DAGMan slots that are free there for us."""
        return schedd.dagmans_most - self.slots[schedd.pk]

    def given(self, schedd: Schedd, needed: _Needed) -> int:
        """What a DAG gets of the slots that are left there."""
        return max(min(needed.most, self.left(schedd)), needed.least)

    def obstacle(self, schedd: Schedd, needed: _Needed, usable: Collection[str]) -> str:
        """Why a DAG may not go to a schedd; "" when it may."""
        if needed.pools and schedd.pool_id not in needed.pools:
            return f"of pool {schedd.pool_id}, not of {' or '.join(needed.pools)}"
        if schedd.state not in usable:
            return f"state {schedd.state}"
        if schedd.unusable:
            return schedd.unusable
        if needed.least and (why := self.held.get(schedd.pool_id) or self.held.get(EVERYWHERE)):
            return f"waits for {why}"
        if needed.least and self.left(schedd) < needed.least:
            return f"{self.load(schedd)}, {needed.least} more are needed"
        return ""

    def load(self, schedd: Schedd) -> str:
        """In words."""
        others = f" beside {schedd.dagmans_others} of others" if schedd.dagmans_others else ""
        return f"{self.dags[schedd.pk]} DAGs with {self.slots[schedd.pk]} of {schedd.dagmans_most} DAGMan slots{others}"


def _lightest(room: Room, schedds: Iterable[Schedd], needed: _Needed, reserved: int | None) -> Decision:
    """Of the enabled ones that are healthy, else of the busy ones, where it has reserved slots, else the one with the smallest
    part of its DAGMan slots in use; each other one with the reason why not."""
    candidates: list[tuple[bool, bool, float, int, str, Schedd]] = []
    rejected: dict[str, str] = {}
    for schedd in schedds:
        if why := room.obstacle(schedd, needed, (ScheddState.ENABLED,)):
            rejected[schedd.name] = why
        else:
            busy, part = schedd.health == Health.BUSY, room.slots[schedd.pk] / schedd.dagmans_most
            candidates.append((busy, schedd.pk != reserved, part, -room.left(schedd), schedd.name, schedd))
    if not candidates:
        where = f"a schedd with room in {' or '.join(needed.pools)}" if needed.pools else "a schedd with room"
        return Decision(None, f"{where}: " + ("; ".join(f"{n}: {r}" for n, r in rejected.items()) or "none is known"))
    first, *others = sorted(candidates, key=lambda c: c[:5])
    chosen = first[-1]
    for busy, *_, schedd in others:
        worse = f"busy: {schedd.health_reason}" if busy > first[0] else room.load(schedd)
        rejected[schedd.name] = f"{'' if busy > first[0] else 'not the lightest, or not reserved: '}{worse}"
    why = f"{chosen.health}, {room.load(chosen)}" + (", reserved" if chosen.pk == reserved else "")
    return Decision(chosen, "", room.given(chosen, needed), {"chosen": chosen.name, "why": why, "rejected": rejected})
