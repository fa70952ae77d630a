"""The first page: whether anything needs a person, what, and how the installation stands. A fixed number of statements.

What all readers see alike and costs more is kept for some seconds: the head of the queue by its selector, the charts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Q, Sum
from django.utils import timezone
from django.utils.safestring import SafeString

from dags_app.models import DAG, LIVE_DAG
from dags_app.selectors import schedds_counted
from requests_app.admission.placement import taking_slot
from requests_app.models import LEADER_LEASE, Alert, AlertChannel, DeadLetter, DeadLetterKind, RequestStatus, Severity
from requests_app.pages.cached import chart_drawn
from requests_app.selectors.admission import QueuedRow, queue_head
from requests_app.selectors.alerts import channels_failing
from requests_app.selectors.lifecycle import RUCIO_ACCOUNT, LifecycleState, account_problems_of, leases_known, lifecycle_of
from requests_app.selectors.needs import Cause, needs_by_cause
from requests_app.selectors.reqmgr2 import POLL, ReqMgr2State, reqmgr2_of
from requests_app.selectors.summary import stored_counts
from requests_app.services.dead_letters import ADVICE
from sites_app.bans import bans_active
from sites_app.guard import alerts_open
from sites_app.models import Health, Schedd, SystemicAlert
from sites_app.services import avoided_by_all, sites_closed
from wms2.models import Worker, WorkerPool
from wms2.runtime import clock
from wms2.runtime.circuits import CircuitState, circuits
from wms2.runtime.combined_query import CombinedQuery, composed_once
from wms2.runtime.in_force import in_force
from wms2.web.formatting import counted
from wms2.web.time_range import TimeRange
from wms2.work.workers import PoolProblem, problems_of

#: Services that WMS2 cannot do without -> what each is called.
SERVICES = {
    "reqmgr2": "ReqMgr2", "configcache": "ConfigCache", "dbs": "DBS", "rucio": "Rucio", "cric": "CRIC", "htcondor": "HTCondor"
}  # fmt: skip


#: What is drawn over time, and by what it is divided.
MEASURES_SHOWN = (("events", ""), ("units", ""), ("files", ""), ("running", ""), ("idle", ""), ("failures", "code"))


class DeadLetters(NamedTuple):
    """What no retry brings on any more, of one kind, and what to do."""

    kind: DeadLetterKind
    number: int
    advice: str


class Jobs(NamedTuple):
    """Of all live DAGs, as the schedds counted them last. Slots are live DAGs and requests being planned."""

    running: int
    idle: int
    held: int
    slots_used: int
    slots_limit: int


class Service(NamedTuple):
    """A service as its callers have found it: how many calls failed in a row, and which of its places are left alone now."""

    name: str
    failures: int
    paused: tuple[str, ...]


class ServiceState(NamedTuple):
    """Whatever is neither a request nor a number: all of it short."""

    lifecycle: LifecycleState
    schedds: tuple[Any, ...]
    closed_sites: Sequence[tuple[str, str]]
    systemic: Sequence[SystemicAlert]
    reqmgr2: ReqMgr2State
    rucio_account: list[str]
    pools: Sequence[WorkerPool]
    worker_pools: list[PoolProblem]
    dead_letters: list[DeadLetters]
    jobs: Jobs
    alerts: list[AlertsOpen]
    failing_channels: Sequence[AlertChannel]
    services: list[Service]

    @property
    def silent_schedds(self) -> tuple[Schedd, ...]:
        """In use, and do not answer."""
        return tuple(row for row in self.schedds if row.in_use and row.unreachable_since is not None)

    @property
    def degraded_schedds(self) -> tuple[Schedd, ...]:
        """In use, answer, and get no new DAG."""
        degraded = (row for row in self.schedds if row.in_use and row.health == Health.DEGRADED)
        return tuple(row for row in degraded if row.unreachable_since is None)

    @property
    def stray_schedds(self) -> tuple[Schedd, ...]:
        """With jobs that no live DAG knows."""
        return tuple(row for row in self.schedds if row.orphans_reported)


class AlertsOpen(NamedTuple):
    """Open alerts of one severity, how many of them are owned by a person, and how many silenced."""

    severity: Severity
    number: int
    owned: int
    silenced: int


class AttentionItem(NamedTuple):
    """One thing that needs a person. ``stops``: it stops more than one request; ``since``: None where that is not known."""

    text: str
    since: datetime | None
    stops: bool = False


class Overview(NamedTuple):
    """All of the page. ``first`` is the sentence that says whether to get up."""

    things: tuple[AttentionItem, ...]
    first: str
    causes: list[Cause]
    service_state: ServiceState
    counts: tuple[tuple[RequestStatus, int], ...]
    total: int
    queue: list[QueuedRow]
    range: TimeRange
    charts: list[SafeString]


def overview(range_: TimeRange) -> Overview:
    """Five statements, and those of the head of the queue once in some seconds."""
    numbers, causes, known = stored_counts().requests, needs_by_cause(), service_state()
    found = list(_of_service(known))
    found += (AttentionItem(f"{counted(cause.number, 'request')}: {cause.label.rstrip('.')}", cause.since) for cause in causes)
    things = tuple(sorted(found, key=lambda thing: (not thing.stops, thing.since.timestamp() if thing.since else float("inf"))))
    return Overview(
        things=things,
        first=sentence(things),
        causes=causes,
        service_state=known,
        counts=tuple((status, numbers[status]) for status in RequestStatus if numbers[status]),
        total=sum(numbers.values()),
        queue=queue_head(),
        range=range_,
        charts=[chart_drawn(measure, range_, by=by) for measure, by in MEASURES_SHOWN],
    )


@composed_once
def _short() -> CombinedQuery:
    live = DAG.objects.filter(status__in=LIVE_DAG).order_by().values("status")
    alerts = Alert.objects.filter(ended_at=None).order_by().values("severity")  # an index of open rows alone
    silenced = Count("id", filter=Q(silenced_until__gt=clock.in_sql()))
    return CombinedQuery(
        leases=leases_known(LEADER_LEASE, POLL, RUCIO_ACCOUNT),
        schedds=schedds_counted().order_by("unreachable_since", "pk"),
        closed=sites_closed(),
        bans=bans_active().filter(workflow__isnull=True),
        systemic=alerts_open(),
        pools=WorkerPool.objects.all(),
        workers=Worker.objects.all(),
        alerts=alerts.annotate(number=Count("id"), owned=Count("id", filter=~Q(owner="")), silenced=silenced),
        channels=channels_failing(),
        dead_letters=DeadLetter.objects.order_by().values("kind").annotate(number=Count("pk")),
        jobs=live.annotate(dags=Count("*"), running=Sum("nodes_running"), idle=Sum("nodes_idle"), held=Sum("nodes_held")),
    )


def service_state() -> ServiceState:
    """Three statements: what is short by one, the problems with ReqMgr2, requests that hold a slot without a DAG."""
    rows = _short().rows()
    leases = {row.name: row for row in rows["leases"]}
    dead_letters = {row["kind"]: row["number"] for row in rows["dead_letters"]}
    return ServiceState(
        lifecycle=lifecycle_of(leases.get(LEADER_LEASE)),
        schedds=tuple(rows["schedds"]),
        closed_sites=sorted(avoided_by_all(rows["closed"], rows["bans"]).items()),
        systemic=rows["systemic"],
        reqmgr2=reqmgr2_of(leases.get(POLL)),
        rucio_account=account_problems_of(leases.get(RUCIO_ACCOUNT)),
        pools=rows["pools"],
        worker_pools=problems_of(rows["pools"], rows["workers"]),
        dead_letters=[DeadLetters(kind, dead_letters[kind], ADVICE[kind]) for kind in DeadLetterKind if kind in dead_letters],
        jobs=_jobs(rows["jobs"]),
        alerts=[
            AlertsOpen(severity, row["number"], row["owned"], row["silenced"])
            for severity in Severity
            for row in rows["alerts"]
            if row["severity"] == severity
        ],
        failing_channels=rows["channels"],
        services=_services(circuits().all()),
    )


def sentence(things: Sequence[AttentionItem]) -> str:
    """Whether anything needs a person, and what first; whether it stops more than one request."""
    if not things:
        return "Nothing needs you."
    first, stopping = things[0], sum(thing.stops for thing in things)
    begins = f"{counted(len(things), 'thing needs', 'things need')} you"
    since = f", the first since {_clock(first.since)}" if first.since else ""
    ends = f"{counted(stopping, 'of them stops', 'of them stop')} more than one request." if stopping else "All else goes on."
    return f"{begins}{since}: {first.text}. {ends}"


def _clock(at: datetime) -> str:
    recent = timezone.now() - at < timedelta(hours=20)
    return f"{at:%H:%M} UTC" if recent else f"{at:%Y-%m-%d %H:%M} UTC"


def _of_service(known: ServiceState) -> Iterator[AttentionItem]:
    """What stands above the requests on the page, in a few words."""
    if known.lifecycle.stale:
        yield AttentionItem("the life cycle has stopped", known.lifecycle.last_cycle_ended_at, stops=True)
    for seen in known.lifecycle.credentials_ending:
        ends = "cannot be used" if seen.problem or seen.ends_at is None else f"ends at {_clock(seen.ends_at)}"
        yield AttentionItem(f"credential {seen.name} {ends}", None, stops=bool(seen.problem))
    for alert in known.systemic:
        held = "new work is held" if alert.holds else "an operator is asked"
        yield AttentionItem(f"{held}{f' in pool {alert.pool}' if alert.pool else ''}", alert.began_at, stops=alert.holds)
    for schedd in known.silent_schedds:
        yield AttentionItem(f"schedd {schedd.name} is silent", schedd.unreachable_since, stops=True)
    for schedd in known.degraded_schedds:
        yield AttentionItem(f"schedd {schedd.name} is degraded", schedd.health_since)
    for schedd in known.stray_schedds:
        yield AttentionItem(f"schedd {schedd.name} has jobs that no live DAG knows", None)
    if known.rucio_account:
        yield AttentionItem("Rucio does not let our account do what outputs need", None, stops=True)
    if known.reqmgr2.follows and known.reqmgr2.error:
        yield AttentionItem("ReqMgr2 cannot be followed", known.reqmgr2.polled_at)
    if known.reqmgr2.problems:
        yield AttentionItem(f"ReqMgr2 and WMS2 do not agree on {counted(len(known.reqmgr2.problems), 'request')}", None)
    for pool in known.worker_pools:
        yield AttentionItem(f"worker pool {pool.queue} does not do its work", None, stops=True)
    for channel in known.failing_channels:
        yield AttentionItem(f"alerts do not reach the channel {channel.name}", channel.failing_since)
    for dead_letters in known.dead_letters:
        yield AttentionItem(f"{counted(dead_letters.number, 'dead letter')}: {dead_letters.kind.label}", None)


def _jobs(rows: Sequence[dict[str, Any]]) -> Jobs:
    sums = {name: sum(row[name] or 0 for row in rows) for name in ("dags", "running", "idle", "held")}
    used = sums.pop("dags") + taking_slot().count()
    return Jobs(**sums, slots_used=used, slots_limit=in_force().max_active_dags)


def _services(states: dict[str, CircuitState]) -> list[Service]:
    found = []
    for key, name in SERVICES.items():
        ours = {place: state for place, state in states.items() if place.partition(":")[0] == key}
        paused = tuple(sorted(place.partition(":")[2] or name for place, state in ours.items() if state.pause_seconds))
        found.append(Service(name, max((state.failures for state in ours.values()), default=0), paused))
    return found
