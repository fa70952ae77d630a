"""What needs a person: requests, schedds, the life cycle itself. Read by the pages; each part over an index."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, Case, Count, Exists, F, Func, OuterRef, Q, QuerySet, TextChoices, Value, When

from dags_app.counts import UnitCounts, unit_counts
from dags_app.models import WorkUnit, WorkUnitState
from dags_app.selectors import schedds_counted
from outputs_app.models import CaseState, Drift, DriftState, Effect, IntegrityCase
from outputs_app.selectors import STUCK
from requests_app.models import EVALUATED, DeadLetterKind, Harvest, HarvestState, HoldCode, Request, RequestStatus
from requests_app.selectors.explain import Explanation, explain
from requests_app.selectors.lifecycle import rucio_account_problems
from requests_app.selectors.reqmgr2 import ReqMgr2State, reqmgr2_state
from requests_app.selectors.requests import requests_listed
from requests_app.selectors.summary import dead_letter_counts
from requests_app.services.dead_letters import ADVICE
from sites_app.guard import alerts_open
from sites_app.models import Health, Schedd, SystemicAlert
from sites_app.services import sites_avoided
from wms2.web.formatting import word
from wms2.work.workers import PoolProblem, pool_problems

#: Requests that are shown as needing an operator; with more, something larger is wrong.
MOST = 50
#: Effects whose errors are shown for one request; the others are counted.
ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One request on the page."""

    request: Request
    units: UnitCounts

    @property
    def status(self) -> TextChoices:
        """With its label."""
        return self.request.status_shown

    @property
    def held_for(self) -> str:
        """What it is held for; empty while it is not."""
        return str(word(HoldCode, self.request.hold_code).label) if self.request.status == RequestStatus.HELD else ""


class StuckEffects(NamedTuple):
    """Registrations of one request that go no further by themselves."""

    number: int
    shown: tuple[Effect, ...]

    @property
    def left_out(self) -> bool:
        """Whether there are more than are shown."""
        return self.number > len(self.shown)


@dataclass(frozen=True, slots=True)
class Needing(Line):
    """One request that needs an operator, and why: held, an alert in words, stuck effects, unaccounted units, differences from
    DBS and Rucio that are not settled, files that wait for a decision."""

    explanation: Explanation
    effects: StuckEffects
    drift: int
    cases: int


class DeadLetters(NamedTuple):
    """What no retry brings on any more, of one kind, and what to do."""

    kind: DeadLetterKind
    number: int
    advice: str


class Attention(NamedTuple):
    """What needs a person, longest waiting first; ``more``: there are further requests than shown."""

    requests: tuple[Needing, ...]
    more: bool
    silent_schedds: tuple[Schedd, ...]
    degraded_schedds: tuple[Schedd, ...]
    stray_schedds: tuple[Schedd, ...]
    closed_sites: Sequence[tuple[str, str]]
    systemic: Sequence[SystemicAlert]
    reqmgr2: ReqMgr2State
    rucio_account: list[str]
    worker_pools: list[PoolProblem]
    dead_letters: list[DeadLetters]

    @property
    def request_ids(self) -> list[uuid.UUID]:
        """Of the requests shown."""
        return [row.request.pk for row in self.requests]


def attention() -> Attention:
    """Fourteen queries, for any number of rows."""
    rows: list[Any] = list(requests_needing()[: MOST + 1])
    shown = rows[:MOST]
    effects = _stuck_effects([row.pk for row in shown])
    drift, cases = (
        dict(rows.filter(request__in=[row.pk for row in shown]).values_list("request_id").annotate(number=Count("id")))
        for rows in (_unsettled(), _undecided())
    )
    units = unit_counts(row.workflow_key for row in shown if row.workflow_key)
    unwell = Q(in_use=True) & (Q(unreachable_since__isnull=False) | Q(health=Health.DEGRADED))
    schedds = list(schedds_counted().filter(unwell | ~Q(orphans=[])).order_by("unreachable_since", "pk"))
    used = [row for row in schedds if row.in_use]
    return Attention(
        requests=tuple(_needing(row, effects[row.pk], (drift.get(row.pk, 0), cases.get(row.pk, 0)), units) for row in shown),
        more=len(rows) > MOST,
        silent_schedds=tuple(row for row in used if row.unreachable_since is not None),
        degraded_schedds=tuple(row for row in used if row.health == Health.DEGRADED and row.unreachable_since is None),
        stray_schedds=tuple(row for row in schedds if row.orphans_reported),
        closed_sites=sorted(sites_avoided(None).items()),
        systemic=list(alerts_open()),
        reqmgr2=reqmgr2_state(),
        rucio_account=rucio_account_problems(),
        worker_pools=pool_problems(),
        dead_letters=_dead_letters(),
    )


def _dead_letters() -> list[DeadLetters]:
    numbers = dead_letter_counts()
    return [DeadLetters(kind, numbers[kind], ADVICE[kind]) for kind in DeadLetterKind if kind in numbers]


def requests_needing() -> QuerySet[Request]:
    """HELD, alerted, with effects refused or dead, with units that are done and unaccounted, with unsettled differences or
    integrity cases, or with DQM that could not be harvested."""
    unaccounted = WorkUnit.objects.filter(
        state=WorkUnitState.DONE_UNACCOUNTED, workflow__request__status__in=EVALUATED
    ).values_list("workflow__request__id")
    unharvested = Harvest.objects.filter(state=HarvestState.FAILED)
    found = (
        Request.objects.filter(status=RequestStatus.HELD)
        .order_by()
        .values_list("pk")
        .union(
            Request.objects.exclude(alert_code="").order_by().values_list("pk"),
            Effect.objects.filter(state__in=STUCK, epoch=F("request__epoch")).order_by().values_list("request_id"),
            unaccounted.order_by(),
            _unsettled().filter(request__isnull=False).values_list("request_id"),
            _undecided().values_list("request_id"),
            unharvested.order_by().values_list("request__id"),
        )
    )
    held_first = Case(When(status=RequestStatus.HELD, then=Value(0)), default=Value(1))
    listed: QuerySet[Request] = requests_listed().annotate(
        unharvested=Exists(unharvested.filter(request=OuterRef("request_name")))
    )
    # an array, because they are few: for a subquery PostgreSQL reads all requests
    is_found = Func("pk", ArraySubquery(found), template="%(expressions)s)", arg_joiner=" = ANY(", output_field=BooleanField())
    return listed.filter(is_found).order_by("-urgent", held_first, "status_since", "pk")


def _unsettled() -> QuerySet[Drift]:
    return Drift.objects.filter(state=DriftState.UNSETTLED).order_by()


def _undecided() -> QuerySet[IntegrityCase]:
    return IntegrityCase.objects.filter(state=CaseState.NEW).order_by()


def _needing(row: Any, effects: Sequence[Effect], counts: tuple[int, int], units: Any) -> Needing:
    return Needing(
        request=row,
        explanation=explain(row),
        effects=StuckEffects(len(effects), tuple(effects[:ERRORS_SHOWN])),
        drift=counts[0],
        cases=counts[1],
        units=units[row.workflow_key],
    )


def _stuck_effects(request_ids: list[uuid.UUID]) -> dict[uuid.UUID, list[Effect]]:
    stuck = Effect.objects.filter(request_id__in=request_ids, state__in=STUCK, epoch=F("request__epoch"))
    rows = stuck.select_related("block").defer("payload", "result", "block__failure_context").order_by("id")
    found: dict[uuid.UUID, list[Effect]] = defaultdict(list)
    for effect in rows[: MOST * 20]:
        found[effect.request_id].append(effect)
    return found
