"""Who may start next (spec 4.4; ``model.md`` section 3, Limits; ``control-plane.md``, Placement).

Counts live DAG rows, never statuses: urgent first, then priority, then time queued. A request whose planning or submission
failed carries ``next_attempt_at`` and is passed over. One advisory lock over admission keeps two evaluations from taking the
same last slot. Capacity of a schedd is counted in DAGMan slots: an outer DAG and its concurrent units.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import schedds_counted
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
    """Whether the request starts now, where, and if not, what it waits for."""

    admitted: bool
    waits_for: str
    schedd: Schedd | None = None
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
    return queue().filter(Q(next_attempt_at__isnull=True) | Q(next_attempt_at__lte=clock.now()))


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
    groups = limit_int("dag_max_merge_groups")
    live = DAG.objects.filter(status__in=LIVE_DAG).count()
    idle_needed = (live + 1) * groups * limit_int("jobs_per_work_unit")
    if idle_needed > limit_int("idle_job_budget"):
        return Decision(False, f"the idle-job budget: {idle_needed} of {limit_int('idle_job_budget')} would be queued")
    return choose_schedd()


def choose_schedd() -> Decision:
    """The enabled schedd with most DAGMan slots left; each rejected one with its reason."""
    per_dag = 1 + limit_int("dag_max_merge_groups")
    candidates: list[tuple[int, str, Schedd]] = []
    rejected: dict[str, str] = {}
    for schedd in schedds_counted():
        capacity = schedd.max_dagman_slots // per_dag
        if schedd.max_dags is not None:
            capacity = min(capacity, schedd.max_dags)
        if schedd.state != ScheddState.ENABLED:
            rejected[schedd.name] = f"state {schedd.state}"
        elif schedd.unreachable_since is not None:
            rejected[schedd.name] = f"does not answer since {schedd.unreachable_since:%H:%M:%S} UTC"
        elif schedd.live_dags >= capacity:
            slots = f"{schedd.max_dagman_slots} DAGMan slots, {per_dag} each"
            rejected[schedd.name] = f"{schedd.live_dags} of {capacity} DAGs ({slots})"
        else:
            candidates.append((capacity - schedd.live_dags, schedd.name, schedd))
    if not candidates:
        return Decision(False, "a schedd with room: " + ("; ".join(f"{n}: {r}" for n, r in rejected.items()) or "none is known"))
    _, _, chosen = max(candidates, key=lambda c: (c[0], c[1]))
    return Decision(True, "", chosen, {"chosen": chosen.name, "rejected": rejected})
