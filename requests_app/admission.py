"""Who may start next (spec 4.4; docs/design/control.md, Admission).

Counts live DAG rows, never statuses: urgent first, then priority, then time queued. A request whose planning or submission
failed carries ``next_attempt_at`` and is passed over. One advisory lock over admission keeps two evaluations from taking the
same last slot. Capacity of a schedd is counted in DAGMan slots: an outer DAG and its concurrent units, as many as it was rendered
with; what was admitted reserves its slots until its DAG is there (ADR 0048).
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, F, Q, QuerySet, Sum

from dags_app.models import DAG, LIVE_DAG
from requests_app.limits import limit_int
from requests_app.models import Request, RequestStatus
from sites_app.models import Schedd, ScheddState
from wms2 import clock

#: Statuses that hold an admission slot although their DAG row may not exist yet.
TAKING_SLOT = (RequestStatus.PLANNING, RequestStatus.PARTIAL)
#: Places beyond are not counted out for each request in each cycle; the queue's own page and API show them all.
COUNTED_PLACES = 1000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the request starts now, where, with how many DAGMan slots, and if not, what it waits for."""

    admitted: bool
    waits_for: str
    schedd: Schedd | None = None
    slots: int = 0
    placement: dict[str, object] | None = None


def slots_used() -> int:
    """Live DAGs plus requests that keep or have taken a slot without a live DAG row."""
    planning = Request.objects.filter(status__in=TAKING_SLOT).exclude(workflow__dags__status__in=LIVE_DAG)
    return DAG.objects.filter(status__in=LIVE_DAG).count() + planning.count()


def queue() -> QuerySet[Request]:
    """QUEUED requests in admission order, those with a pause still running included."""
    return Request.objects.filter(status=RequestStatus.QUEUED).order_by("-urgent", "-priority", "queued_at", "id")


def eligible() -> QuerySet[Request]:
    """The queue without those that wait for their next attempt."""
    return queue().filter(Q(next_attempt_at__isnull=True) | Q(next_attempt_at__lte=clock.in_sql()))


def _before(request: Request) -> Q:
    """What comes before a request in the order of ``queue``."""
    same_class = Q(urgent=request.urgent)
    same_priority = same_class & Q(priority=request.priority)
    return (
        Q(urgent__gt=request.urgent)
        | same_class & Q(priority__gt=request.priority)
        | same_priority & Q(queued_at__lt=request.queued_at)
        | same_priority & Q(queued_at=request.queued_at, id__lt=request.pk)
    )


def decide(request: Request) -> Decision:
    """Judge one QUEUED request; call under the admission lock."""
    if request.next_attempt_at and request.next_attempt_at > clock.now():
        return Decision(
            False, f"next attempt at {request.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC after: {request.last_error}"[:1000]
        )
    limit, used = limit_int("max_active_dags"), slots_used()
    free = limit - used
    if free <= 0:
        return Decision(False, f"a free DAG slot: {used} of {limit} in use")
    before = eligible().filter(_before(request))[: max(free, COUNTED_PLACES)].count()
    if before >= free:
        place = f"place {before + 1}" if before < COUNTED_PLACES else f"{before} or more before it"
        return Decision(False, f"its turn: {place} in the queue, {free} free slots")
    idle_needed = (_groups_running() + limit_int("dag_max_merge_groups")) * limit_int("jobs_per_work_unit")
    if idle_needed > limit_int("idle_job_budget"):
        return Decision(False, f"the idle-job budget: {idle_needed} of {limit_int('idle_job_budget')} would be queued")
    return schedd_for(request)


def _groups_running() -> int:
    """Work units that live DAGs may run at the same time, each as it was rendered."""
    return int(DAG.objects.filter(status__in=LIVE_DAG).aggregate(total=Sum("merge_groups"))["total"] or 0)


def schedd_for(request: Request) -> Decision:
    """Where the request's next DAG goes: a rescue to the schedd that has its directory; others to the one where they have
    reserved slots, else where most room is.

    A rescue whose schedd is taken out of service moves to one that sees the same directories (``submit_root``), if there is one.

    Call under the admission lock, and write ``reserved_schedd`` and ``reserved_slots`` in the same transaction: whoever comes
    next must count them.
    """
    rescued = dag_to_rescue(request)
    if rescued is None or rescued.schedd is None:
        return _emptiest(request, Schedd.objects.all(), 1 + limit_int("dag_max_merge_groups"))
    schedd, needed = rescued.schedd, 1 + rescued.merge_groups
    if schedd.state != ScheddState.ENABLED:
        others = Schedd.objects.filter(pool=schedd.pool, submit_root=schedd.submit_root).exclude(pk=schedd.pk)
        moved = _emptiest(request, others, needed)
        if moved.admitted:
            return moved
    # alone, a draining schedd keeps what it has until it is done
    usable = (ScheddState.ENABLED, ScheddState.DRAINING)
    why = _obstacle(schedd, _used(apart_from=request).get(schedd.pk, _Used()), needed, usable)
    if why:
        return Decision(False, f"its schedd, which has its DAG's directory: {schedd.name}: {why}")
    return Decision(True, "", schedd, needed, {"chosen": schedd.name, "why": "its directory lies there"})


def dag_to_rescue(request: Request) -> DAG | None:
    """The DAG that ran last in the request's open round: unless a person chose otherwise, its rescue is next."""
    rows = DAG.objects.filter(round__workflow__request=request, round__closed_at__isnull=True, submitted_at__isnull=False)
    return rows.select_related("schedd").order_by("-fence").first()


@dataclass(frozen=True, slots=True)
class _Used:
    """What a schedd has: outer DAGs, and DAGMan slots of these and of the units they may run."""

    dags: int = 0
    slots: int = 0


def _used(*, apart_from: Request) -> dict[int, _Used]:
    """By schedd: live DAGs as they were rendered, and requests that were admitted there and whose DAG is not there yet."""
    there = DAG.objects.filter(status__in=LIVE_DAG, schedd__isnull=False)
    dags = there.order_by().values_list("schedd").annotate(n=Count("pk"), slots=Sum(1 + F("merge_groups")))
    coming = Request.objects.filter(status__in=TAKING_SLOT, reserved_schedd__isnull=False).exclude(pk=apart_from.pk)
    coming = coming.exclude(pk__in=there.values("workflow__request__pk"))
    reserved = coming.order_by().values_list("reserved_schedd").annotate(n=Count("pk"), slots=Sum("reserved_slots"))
    found: dict[int, _Used] = {}
    for schedd, number, slots in [*dags, *reserved]:
        before = found.get(schedd, _Used())
        found[schedd] = _Used(before.dags + number, before.slots + slots)
    return found


def _obstacle(schedd: Schedd, used: _Used, needed: int, usable: tuple[ScheddState, ...]) -> str:
    """Why no DAG of this many slots may go to a schedd; "" when it may."""
    if schedd.state not in usable:
        return f"state {schedd.state}"
    if schedd.unreachable_since is not None:
        return f"does not answer since {schedd.unreachable_since:%H:%M:%S} UTC"
    if used.slots + needed > schedd.max_dagman_slots:
        return f"{used.dags} DAGs with {used.slots} of {schedd.max_dagman_slots} DAGMan slots, {needed} more are needed"
    return ""


def _emptiest(request: Request, schedds: QuerySet[Schedd], needed: int) -> Decision:
    """The enabled one with most DAGMan slots left; each rejected one with its reason."""
    used = _used(apart_from=request)
    reserved = request.reserved_schedd_id if request.status in TAKING_SLOT else None
    candidates: list[tuple[bool, int, str, Schedd]] = []
    rejected: dict[str, str] = {}
    for schedd in schedds:
        has = used.get(schedd.pk, _Used())
        why = _obstacle(schedd, has, needed, (ScheddState.ENABLED,))
        if why:
            rejected[schedd.name] = why
        else:
            candidates.append((schedd.pk == reserved, schedd.max_dagman_slots - has.slots, schedd.name, schedd))
    if not candidates:
        return Decision(False, "a schedd with room: " + ("; ".join(f"{n}: {r}" for n, r in rejected.items()) or "none is known"))
    *_, chosen = max(candidates, key=lambda c: c[:3])
    return Decision(True, "", chosen, needed, {"chosen": chosen.name, "rejected": rejected})
