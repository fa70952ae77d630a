"""Operations: where DAGs run, who works on them, what limits them, and what was changed. Each part is over an index or short."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils import timezone

from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import schedds_counted
from requests_app.models import AdmissionState, Event, RequestStatus
from requests_app.pages.tables import AUDIT, Table, table_of
from requests_app.pages.tables import MOST as MOST_OF_FILES
from requests_app.selectors.admission import LimitInForce, config_in_force
from requests_app.selectors.lifecycle import LifecycleState, lifecycle_state
from requests_app.selectors.summary import stored_counts
from sites_app.bans import AUTOMATIC
from sites_app.models import HealthChange, Pool
from wms2.api.filters import MomentField
from wms2.models import AuditEntry
from wms2.runtime.storable import storable
from wms2.work.workers import WorkersOfPool, workers_by_pool

#: Rows of each list of a page.
MOST = 100
#: Changes of status that are looked through.
MOST_CHANGES = 500
SINCE = {"1h": "the last hour", "8h": "this shift (8 h)", "24h": "the last day", "7d": "the last week"}
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1)}
#: Changes of what requests stand on.
_OF_SERVICE = ("site.status", "pool.state", "schedd.state", "schedd.health", "service.level")


class Operations(NamedTuple):
    """What the page shows. ``dags``: live ones, over all schedds; ``stopped``: why no request starts."""

    schedds: Sequence[Any]
    pools: Sequence[Pool]
    workers: Sequence[WorkersOfPool]
    lifecycle: LifecycleState
    dags: int
    dags_most: int
    queued: int
    stopped: str
    jobs_idle: int
    limits: Sequence[LimitInForce]
    changed: int


def operations() -> Operations:
    """Eight queries."""
    schedds, pools, limits = list(schedds_counted()), list(Pool.objects.all()), config_in_force()
    values = {limit.name: limit.value for limit in limits}
    admission = AdmissionState.objects.first() or AdmissionState()
    return Operations(
        schedds=schedds,
        pools=pools,
        workers=workers_by_pool(),
        lifecycle=lifecycle_state(),
        dags=sum(each.live_dags for each in schedds),
        dags_most=int(values["max_active_dags"]),
        queued=stored_counts().requests[RequestStatus.QUEUED],
        stopped=admission.stopped,
        jobs_idle=sum(pool.jobs_idle for pool in pools),
        limits=limits,
        changed=sum(limit.value != limit.default for limit in limits),
    )


class ScheddSeen(NamedTuple):
    """One schedd: what runs there, and how it fared."""

    schedd: Any
    dags: Sequence[DAG]
    more: bool
    health: Sequence[HealthChange]


def schedd_seen(schedd: Any) -> ScheddSeen:
    """Two queries."""
    dags = list(_live(schedd).select_related("workflow").only(*_OF_DAGS)[: MOST + 1])
    return ScheddSeen(schedd, dags[:MOST], len(dags) > MOST, list(schedd.health_changes.all()[:20]))


def schedd_lists(schedd: Any) -> dict[str, Callable[[], Table]]:
    """Those of its page, each to be read by itself."""
    return {
        "dags": table_of(_live(schedd), "id", *_OF_DAGS),
        "health": table_of(schedd.health_changes.all(), "at", "old", "new", "reason"),
    }


def _live(schedd: Any) -> QuerySet[DAG]:
    return DAG.objects.filter(schedd=schedd, status__in=LIVE_DAG).order_by("submitted_at")


_OF_DAGS = (
    "status", "kind", "dagman_cluster_id", "total_work_units", "units_done", "submitted_at", "suspected_at",
    "workflow__request_id",
)  # fmt: skip


class Change(NamedTuple):
    """What requests stand on is otherwise than before."""

    at: datetime
    what: str
    name: str
    data: Mapping[str, Any]


class Activity:
    """What was done and what changed, since when, and by whom; all of it in the address. ``errors`` by field."""

    ranges = SINCE

    def __init__(self, given: QueryDict) -> None:
        self.errors: dict[str, str] = {}
        self.values = {name: storable(given.get(name, "")) for name in ("actor", "action", "target", "people")}
        self.values["since"] = given.get("since", "8h")
        self.since = self._moment(self.values["since"])
        self.people = self.values["people"] != "no"

    def _moment(self, text: str) -> datetime:
        now = timezone.now()
        if found := re.fullmatch(r"(\d{1,3})([hd])", text):
            return now - int(found[1]) * _UNITS[found[2]]
        try:
            moment: datetime = MomentField().clean(text)
        except ValidationError:
            self.errors["since"] = "8h, 7d, or a moment in UTC, e.g. 2026-12-24 08:00"
            return now
        return moment

    def entries(self) -> QuerySet[AuditEntry]:
        """Of the audit, the newest first."""
        rows = AuditEntry.objects.filter(at__gte=self.since).order_by("-at", "-id")
        if self.people:
            rows = rows.exclude(actor=AUTOMATIC)
        for name in ("actor", "action"):
            if self.values[name]:
                rows = rows.filter(**{name: self.values[name]})
        return rows.filter(target__icontains=self.values["target"]) if self.values["target"] else rows

    def shown(self) -> ActivitySeen:
        """Three queries."""
        if self.errors:
            return ActivitySeen([], False, [], [], False)
        entries = list(self.entries()[: MOST + 1])
        found = self._events()
        moved = list(found.filter(kind="request.status").values_list("data__to", flat=True)[:MOST_CHANGES])
        numbers = Counter(moved)
        return ActivitySeen(
            entries[:MOST],
            len(entries) > MOST,
            [(status, numbers[status]) for status in RequestStatus if numbers[status]],
            self._changes(MOST),
            len(moved) == MOST_CHANGES,
        )

    def lists(self) -> dict[str, Callable[[], Table]]:
        """Those of the page, each to be read by itself."""

        def service_changes() -> Table:
            changes = self._changes(MOST_OF_FILES)
            said = ("from", "to", "reason")
            rows = ([each.at, each.what, each.name, *(each.data.get(name) for name in said)] for each in changes)
            return Table(("at", "what", "name", *said), rows)

        return {"activity": table_of(self.entries(), *AUDIT), "standing": service_changes}

    def _events(self) -> QuerySet[Event]:
        return Event.objects.filter(at__gte=self.since, position__isnull=False).order_by("-position")

    def _changes(self, most: int) -> list[Change]:
        rows = self._events().filter(kind__in=_OF_SERVICE).values_list("at", "kind", "data")[:most]
        return [Change(at, kind, str(data.get("name") or data.get("id") or ""), data) for at, kind, data in rows]


class ActivitySeen(NamedTuple):
    """``moved``: how many requests came into each status; ``most_moved``: of the newest changes alone."""

    entries: Sequence[AuditEntry]
    more: bool
    moved: Sequence[tuple[RequestStatus, int]]
    service_changes: Sequence[Change]
    most_moved: bool
