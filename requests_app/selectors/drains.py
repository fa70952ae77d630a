"""How far the drain of a schedd is (docs/design/control.md, Moving)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from dags_app.models import DAG, LIVE_DAG, DAGStatus
from requests_app.admission.placement import nowhere_else, taking_slot
from requests_app.models import Request, RequestStatus
from sites_app.models import Schedd, ScheddState
from wms2.runtime import clock
from wms2.web.formatting import counted

S = RequestStatus
#: Statuses whose last DAG is rescued without an operator's action.
_GOES_ON = (S.QUEUED, S.PLANNING, S.PARTIAL, S.RESUBMITTING, S.STOPPING)


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """A schedd's drain: DAGs and requests that it concerns, counted; ``DrainSerializer`` says which each number counts.

    ``queued``: admitted there, or to go on from a DAG there. ``finished``: not those that were stopped.
    """

    schedd: Schedd
    at_once: int
    left: int
    moving: int
    moved: int
    finished: int
    queued: int
    held: int
    expected_end: datetime | None
    obstacle: str

    @property
    def drained(self) -> bool:
        """Whether nothing is left there, nor comes back there by itself."""
        return self.schedd.state != ScheddState.ENABLED and not (self.left or self.queued)

    def words(self) -> list[str]:
        """For people; none of a schedd that does not drain."""
        if self.schedd.state != ScheddState.DRAINING or self.schedd.drain_since is None:
            return []
        if self.drained:
            text = f"Drained since {self.schedd.drain_since:%Y-%m-%d %H:%M} UTC: nothing is left there."
        else:
            how = f"moved, {self.at_once} at a time" if self.at_once else "left to run to their end"
            text = f"{counted(self.left, 'DAG')} left there, {how}; {counted(self.queued, 'request')} queued for it."
        end = f" Expected end: {self.expected_end:%Y-%m-%d %H:%M} UTC." if self.expected_end else ""
        since = (
            f"{self.moved} moved, {self.moving} on the way, {self.finished} finished since {self.schedd.drain_since:%H:%M} UTC."
        )
        held = [f"{counted(self.held, 'held request')} would go on there."] if self.held else []
        return [f"{text}{end}", since, *held, *([self.obstacle] if self.obstacle else [])]


def drain_progress(schedd: Schedd) -> DrainProgress:
    """As the rows have it now; also of a schedd that does not drain."""
    since = schedd.drain_since or clock.now()
    left = list(schedd.dags.filter(status__in=LIVE_DAG).only("submitted_at", "units_done", "total_work_units"))
    moved = DAG.objects.filter(submitted_at__gte=since, placement__moved__from=schedd.name).count()
    over = schedd.dags.filter(completed_at__gte=since).exclude(status__in=(DAGStatus.STOPPED, DAGStatus.REMOVED))
    waiting, admitted = _waiting(schedd), taking_slot().filter(reserved_schedd=schedd)  # without a DAG there yet
    return DrainProgress(
        schedd=schedd,
        at_once=schedd.drain_at_once,
        left=len(left),
        moving=drain_moving(schedd).count(),
        moved=moved,
        finished=over.count(),
        queued=waiting.filter(status__in=_GOES_ON).count() + admitted.exclude(pk__in=waiting.values("pk")).count(),
        held=waiting.filter(status=S.HELD).count(),
        expected_end=_expected(schedd, left, moved),
        obstacle=nowhere_else(schedd) if schedd.drain_at_once else "",
    )


def drain_moving(schedd: Schedd) -> QuerySet[Request]:
    """What its drain has stopped and that runs nowhere else yet."""
    return Request.objects.filter(moving__away=schedd.pk, moving__drain=True, status__in=_GOES_ON)


def _waiting(schedd: Schedd) -> QuerySet[Request]:
    """Requests whose last DAG has ended there with work left in its round."""
    ended = schedd.dags.filter(round__closed_at__isnull=True, submitted_at__isnull=False, rescues__isnull=True)
    return Request.objects.filter(workflow__dags__in=ended.exclude(status__in=(*LIVE_DAG, DAGStatus.COMPLETED)))


def _expected(schedd: Schedd, left: list[DAG], moved: int) -> datetime | None:
    """At the pace of moves so far, or as each DAG has done its work units so far."""
    now = clock.now()
    if not left:
        return schedd.drained_at
    if schedd.drain_at_once:
        passed = now - (schedd.drain_since or now)
        return now + passed / moved * len(left) if moved else None
    ends = [_end_of(dag, now) for dag in left]
    return max((end for end in ends if end is not None), default=None) if None not in ends else None


def _end_of(dag: DAG, now: datetime) -> datetime | None:
    if not dag.units_done or dag.submitted_at is None:
        return None
    so_far: timedelta = now - dag.submitted_at
    return now + so_far * (dag.total_work_units - dag.units_done) / dag.units_done
