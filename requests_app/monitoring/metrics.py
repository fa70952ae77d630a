"""Gauges over rows, read from PostgreSQL at a scrape, or seconds before: every web process answers the same (spec 4.10).

Labels are bounded: status, kind, prognosis, state, pool, schedd, site, circuit (service and place). No request, DAG or dataset
is one.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Count, F, Min, QuerySet, Sum, Value
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request as HttpRequest
from rest_framework.views import APIView

from dags_app.models import DAG, LIVE_DAG, Leftover
from dags_app.selectors import schedds_counted, seen_at
from outputs_app.checks.reconciliation.rule_check import COUNTED
from outputs_app.checks.validation.process import blocks_unvalidated
from outputs_app.effects.executor import due_effects
from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    Comparison,
    Drift,
    DriftKind,
    DriftState,
    Effect,
    EffectKind,
    FindingKind,
    IntegrityCase,
)
from requests_app.admission.ordering import LIMIT
from requests_app.admission.placement import taking_slot
from requests_app.harvesting.selectors import HARVEST_OPEN
from requests_app.lease import evaluations_due
from requests_app.lifecycle.timeouts import HELD_AFTER_SECONDS
from requests_app.limits import limits_now
from requests_app.models import (
    LEADER_LEASE,
    TERMINAL,
    Alert,
    AlertMessage,
    DeadLetter,
    DeadLetterKind,
    Harvest,
    Request,
    RequestStatus,
    ServiceLevel,
    Severity,
)
from requests_app.selectors.alerts import channels_failing
from requests_app.selectors.lifecycle import leases_known, lifecycle_of
from requests_app.selectors.parts import LEFTOVER_FAILING, LEFTOVER_OPEN
from requests_app.selectors.reqmgr2 import POLL, reqmgr2_of, reqmgr2_problems
from requests_app.selectors.summary import StoredCounts, longest_in_status, stored_counts
from requests_app.service_level import age_seconds, service_row, stretch_of
from sites_app.bans import bans_active
from sites_app.guard import EVERYWHERE, alerts_open
from sites_app.models import Health, Pool, PoolState, ScheddState, Site, SiteStatus
from wms2.adapters.types import JOB_STATES
from wms2.api.views import METHODS
from wms2.conf import conf
from wms2.metrics.files import AllProcesses, directories
from wms2.models import Resource, WorkerPool
from wms2.runtime import clock
from wms2.runtime.cached import Cached
from wms2.runtime.circuits import FAILURES, circuits
from wms2.runtime.combined_query import CombinedQuery, composed_once
from wms2.runtime.levels import Level
from wms2.web.shedding import Call
from wms2.work.workers import TAKING, workers_reporting

#: Statuses whose age is exported.
_GOING_ON = [status.value for status in RequestStatus if status not in (*TERMINAL, RequestStatus.COMPLETED)]


#: Scrapes of a process within so many seconds are shown the same gauges: what they cost does not go with how many there are.
CACHED_SECONDS = 5.0
_gauges = Cached[list[Metric]]()


class RowsCollector(Collector):
    """A fixed number of queries in ``CACHED_SECONDS``: kept counts, and what goes on, over its own indexes."""

    def collect(self) -> Iterable[Metric]:
        """All families."""
        return _gauges.get("", CACHED_SECONDS, lambda: list(self._read()))

    def _read(self) -> Iterator[Metric]:
        counts, rows = stored_counts(), _statement().rows()
        yield from _requests(counts)
        yield _family("wms2_workflows", "Workflows by status", "status", counts.workflows.items())
        yield _family("wms2_blocks", "Processing blocks by status", "status", counts.blocks.items())
        yield from _admission(counts.requests[RequestStatus.QUEUED], rows)
        parts = (_dags, _sites, _pools, _effects, _drift, _cases, _leftovers, _alerts, _lifecycle, _service, _work, _reqmgr2)
        for families in parts:
            yield from families(rows)
        yield from _circuits()


Rows = Mapping[str, list[Any]]


@composed_once
def _statement() -> CombinedQuery:
    """One, since on a busy machine each waits for its turn."""
    return CombinedQuery(**_parts())


def _parts() -> dict[str, QuerySet[Any]]:
    """What gauges are made of, but for counts that the database keeps."""
    dags = DAG.objects.filter(status__in=LIVE_DAG)
    sums = {"done": Sum("units_done"), "total": Sum("total_work_units"), "seen": Min(seen_at())}
    sums |= {state: Sum(f"nodes_{state}") for state in JOB_STATES}
    # of an older epoch none is carried out any more: it would be the oldest for ever
    effects = Effect.objects.filter(state__in=OPEN_EFFECT, epoch=F("request__epoch"))
    wanted = blocks_unvalidated(block__workflow__request__status__in=[*_GOING_ON, RequestStatus.COMPLETED])
    leftovers = Leftover.objects.filter(LEFTOVER_OPEN).exclude(site__in=conf().cleaner_off_sites)
    return {
        "limited": _in_one(Request.objects.filter(status=RequestStatus.QUEUED, waiting_for__startswith=LIMIT)),
        "live": _in_one(dags),
        "taking": _in_one(taking_slot()),
        "schedds": schedds_counted().order_by("name"),  # one sample a name: with two of them Prometheus takes none of the scrape
        "troubles": alerts_open(),
        "dags": _by(dags.exclude(schedd_name=""), "schedd_name", **sums),
        "sites": _by(Site.objects.exclude(status=SiteStatus.ENABLED), "status"),
        "banned": _in_one(bans_active().filter(workflow=None), sites=Count("site", distinct=True)),
        "pools": Pool.objects.filter(state=PoolState.ENABLED).annotate(
            total=Sum("sites__total_slots"), used=Sum("sites__running_slots")
        ),
        "effects": _by(effects, "kind", "state", failing=Min("first_failed_at")),
        "drift": _by(Drift.objects.filter(state=DriftState.UNSETTLED), "kind"),
        "census": Comparison.objects.filter(dataset=None).order_by("pk").values("result", "ended_at")[:1],
        "comparisons": _in_one(Comparison.objects.filter(due_at__isnull=False), first=Min("due_at")),
        "cases": _by(IntegrityCase.objects.filter(state__in=OPEN_CASE), "prognosis", since=Min("created_at")),
        "validations": _in_one(wanted, since=Min("asked_at")),
        "leftovers": _by(leftovers, "site", failing=Count("pk", filter=LEFTOVER_FAILING)),
        "harvests": _by(Harvest.objects.filter(state__in=HARVEST_OPEN), "state"),
        "alerts": _by(Alert.objects.filter(ended_at=None), "severity"),
        "messages": _in_one(AlertMessage.objects.filter(sent_at=None, given_up_at=None), oldest=Min("created_at")),
        "channels": _in_one(channels_failing()),
        "leases": leases_known(LEADER_LEASE, POLL),
        "service": service_row(),
        "due": _in_one(due_effects(), first=Min("next_attempt_at")),
        "worker_pools": WorkerPool.objects.order_by("queue"),
        "workers": workers_reporting(),
        "resources": Resource.objects.annotate(taken=Sum("leases__units")).values("name", "units", "taken"),
        "dead_letters": _by(DeadLetter.objects.all(), "kind"),
        "reqmgr2": _in_one(reqmgr2_problems()),
    }


def _by(rows: QuerySet[Any], *fields: str, **more: Any) -> QuerySet[Any]:
    """``number`` of rows, and more, by these."""
    found: QuerySet[Any] = rows.order_by().values(*fields).annotate(number=Count("pk"), **more)
    return found


def _in_one(rows: QuerySet[Any], **more: Any) -> QuerySet[Any]:
    """The same of all of them: one row."""
    found: QuerySet[Any] = rows.order_by().annotate(one=Value(1)).values("one").annotate(**{"number": Count("pk"), **more})
    return found


def _family(name: str, text: str, labels: str, samples: Iterable[tuple[Any, ...]]) -> Metric:
    """``labels``: separated by blanks; ``samples``: a value of each label, then the number."""
    family = GaugeMetricFamily(name, text, labels=labels.split())
    for *values, number in samples:
        family.add_metric(values, number)
    return family


def _number(rows: list[Any]) -> int:
    """Of ``_in_one``."""
    return rows[0]["number"] if rows else 0


def _since(rows: list[Any], name: str) -> datetime | None:
    return rows[0][name] if rows else None


def _alerts(rows: Rows) -> Iterator[Metric]:
    found = {row["severity"]: row["number"] for row in rows["alerts"]}
    numbers = [(severity.value, found.get(severity.value, 0)) for severity in Severity]
    yield _family("wms2_alerts_open", "Open alerts by severity", "severity", numbers)
    waiting, failing = _number(rows["messages"]), _number(rows["channels"])
    yield _family("wms2_alert_messages_waiting", "Messages of alerts that wait to be sent", "", [(waiting,)])
    oldest = age_seconds(_since(rows["messages"], "oldest"), timezone.now())
    yield _family("wms2_alert_messages_oldest_seconds", "Age of the oldest message that waits to be sent", "", [(oldest,)])
    yield _family("wms2_alert_channels_failing", "Channels to which nothing could be sent last", "", [(failing,)])


def _requests(counts: StoredCounts) -> Iterator[Metric]:
    yield _family("wms2_requests", "Requests by status", "status", counts.requests.items())
    now = timezone.now()
    ages = [(status, age_seconds(since, now)) for status, since in longest_in_status(_GOING_ON).items()]
    help_text = "Longest time that a request has been in a status, without those that wait for other requests; 0 when none is"
    yield _family("wms2_state_age_seconds", help_text, "status", ages)
    most = ((status.value, seconds) for status, seconds in HELD_AFTER_SECONDS.items())
    yield _family("wms2_state_limit_seconds", "After how long in it a request is held", "status", most)
    yield GaugeMetricFamily("wms2_requests_alerted", "Requests with an alert that waits for a person", counts.alerted_requests)


def _admission(queued: int, rows: Rows) -> Iterator[Metric]:
    yield GaugeMetricFamily("wms2_admission_queue_depth", "Queued requests", queued)
    counts, used = _number(rows["limited"]), _number(rows["live"]) + _number(rows["taking"])
    yield GaugeMetricFamily("wms2_admission_kept", "Of these, kept by a limit of a band, campaign or requester", counts)
    yield GaugeMetricFamily("wms2_admission_slots_used", "Live DAGs and requests being planned", used)
    yield GaugeMetricFamily("wms2_admission_slots_limit", "max_active_dags in force", limits_now().max_active_dags)


def _dags(rows: Rows) -> Iterator[Metric]:
    live, suspected, orphans, up = Counter[str](), Counter[str](), Counter[str](), dict[str, float]()
    health, drains = defaultdict[str, set[str]](set), dict[str, float]()
    now = timezone.now()
    for row in rows["schedds"]:
        live[row.name] += row.live_dags
        suspected[row.name] += row.suspected_dags
        orphans[row.name] += sum(each["dagmans"] + each["jobs"] for each in row.orphans_reported)
        up[row.name] = min(up.get(row.name, 1.0), 0.0 if row.unreachable_since and row.in_use else 1.0)
        health[row.name].add(row.health if row.in_use else Health.HEALTHY)
        goes_on = row.state == ScheddState.DRAINING and row.drained_at is None
        drains[row.name] = max(drains.get(row.name, 0.0), age_seconds(row.drain_since if goes_on else None, now))
    yield _family("wms2_dags_live", "Live DAGs by schedd", "schedd", live.items())
    suspicion = "Live DAGs suspected lost, waiting for an operator, by schedd"
    yield _family("wms2_dags_suspected", suspicion, "schedd", suspected.items())
    yield _family("wms2_stray_jobs", "Jobs of ours that no live DAG knows, at two looks, by schedd", "schedd", orphans.items())
    yield _family(
        "wms2_schedd_up",
        "Whether the schedd answered; 1 if it is disabled and unused",
        "schedd",
        up.items(),
    )
    yield _family("wms2_schedd_drain_seconds", "Since a drain began that goes on; 0: none does", "schedd", drains.items())
    classes = ((name, health_class, health_class in health[name]) for name, health_class in itertools.product(health, Health))
    yield _family("wms2_schedd_health", "1 for the class of a schedd's health", "schedd health", classes)
    open_now = {alert.pool: "new work is held" if alert.holds else "an operator is asked" for alert in rows["troubles"]}
    trouble = [
        (what, pool, float(what == open_now.get(pool)))
        for pool in sorted({EVERYWHERE, *open_now})
        for what in ("new work is held", "an operator is asked")
    ]
    help_text = "Whether schedds or sites of a pool turned bad together; no pool: those of all"
    yield _family("wms2_systemic_trouble", help_text, "what pool", trouble)
    jobs = [(row["schedd_name"], state, row[state]) for row in rows["dags"] for state in JOB_STATES]
    yield _family("wms2_node_jobs", "Node jobs in the queues, as last counted", "schedd state", jobs)
    ratios = [(row["schedd_name"], row["done"] / row["total"]) for row in rows["dags"] if row["total"]]
    yield _family("wms2_dag_progress", "Done part of the work units of live DAGs, by schedd", "schedd", ratios)
    ages = [(row["schedd_name"], age_seconds(row["seen"], now)) for row in rows["dags"]]
    yield _family("wms2_dag_observed_age_seconds", "Since the live DAG seen longest ago was seen", "schedd", ages)


def _sites(rows: Rows) -> Iterator[Metric]:
    found = {row["status"]: row["number"] for row in rows["sites"]}
    banned = rows["banned"][0]["sites"] if rows["banned"] else 0
    closed = [
        *((status.value, found.get(status, 0)) for status in SiteStatus if status != SiteStatus.ENABLED),
        ("banned", banned),
    ]
    yield _family("wms2_sites_closed", "Sites that get no new work: by status, or banned for all requests", "why", closed)


def _pools(rows: Rows) -> Iterator[Metric]:
    pools = rows["pools"]
    slots, jobs = [], []
    for pool in pools:
        used = pool.used or 0
        slots += [(pool.name, "running", used), (pool.name, "free", (pool.total or 0) - used)]
        jobs += [(pool.name, "idle", pool.jobs_idle), (pool.name, "running", pool.jobs_running)]
    yield _family("wms2_pool_slots", "Slots at known sites, as collectors reported last", "pool state", slots)
    yield _family("wms2_pool_jobs", "Jobs of all owners, as collectors reported last", "pool state", jobs)
    up = ((pool.name, 0.0 if pool.silent_since else 1.0) for pool in pools)
    yield _family("wms2_pool_up", "Whether the pool's collector answered when it was last asked", "pool", up)


def _effects(rows: Rows) -> Iterator[Metric]:
    now = timezone.now()
    found = {(row["kind"], row["state"]): (row["number"], row["failing"]) for row in rows["effects"]}
    every = [
        (kind, state.value, *found.get((kind, state.value), (0, None))) for kind in EffectKind.values for state in OPEN_EFFECT
    ]
    yield _family("wms2_effects_open", "Registrations not done yet", "kind state", (row[:3] for row in every))
    ages = ((kind, state, age_seconds(failing, now)) for kind, state, _, failing in every)
    yield _family("wms2_effects_failing_seconds", "Since the first failure of what is not done yet", "kind state", ages)


def _drift(rows: Rows) -> Iterator[Metric]:
    now, found = timezone.now(), dict.fromkeys(DriftKind.values, 0) | {row["kind"]: row["number"] for row in rows["drift"]}
    text = "Differences from what DBS and Rucio hold that wait for a person"
    yield _family("wms2_drift_open", text, "kind", found.items())
    census = rows["census"][0] if rows["census"] else {"result": {}, "ended_at": None}
    rules, ended = census["result"].get("rules", {}), census["ended_at"]
    counted = [(name, rules.get(name, 0)) for name in COUNTED]
    yield _family("wms2_rules", "Our rules in Rucio in trouble, by what it is, at the last census", "state", counted)
    age = None if ended is None else age_seconds(ended, now)
    yield GaugeMetricFamily("wms2_census_age_seconds", "Since the last census of our rules ended; none before", age)
    due = _since(rows["comparisons"], "first")
    yield GaugeMetricFamily(
        "wms2_comparisons_late_seconds", "How long a comparison with DBS and Rucio has been due", age_seconds(due, now)
    )


def _cases(rows: Rows) -> Iterator[Metric]:
    found = rows["cases"]
    numbers = dict.fromkeys(FindingKind.values, 0) | {row["prognosis"]: row["number"] for row in found}
    yield _family("wms2_integrity_cases_open", "Integrity cases not at an end", "prognosis", numbers.items())
    oldest = min((row["since"] for row in found), default=None)
    yield GaugeMetricFamily(
        "wms2_integrity_oldest_age_seconds", "Age of the oldest; 0 when none is", age_seconds(oldest, timezone.now())
    )
    number, since = _number(rows["validations"]), _since(rows["validations"], "since")
    yield GaugeMetricFamily("wms2_blocks_unvalidated", "Blocks that are asked to be validated and are not", number)
    age = (clock.now() - since).total_seconds() if since is not None else 0.0
    yield GaugeMetricFamily("wms2_blocks_unvalidated_oldest_seconds", "Since the oldest of them was asked for", age)


def _leftovers(rows: Rows) -> Iterator[Metric]:
    left = (
        sample
        for row in rows["leftovers"]
        for sample in ((row["site"], "waiting", row["number"] - row["failing"]), (row["site"], "failing", row["failing"]))
    )
    yield _family("wms2_leftovers", "Work units whose files are still to be removed", "site state", left)
    harvests = dict.fromkeys(HARVEST_OPEN, 0) | {row["state"]: row["number"] for row in rows["harvests"]}
    yield _family("wms2_harvests", "DQM harvestings that are not at an end", "state", harvests.items())


def _circuits() -> Iterator[Metric]:
    """Only those with failures: an absent one is closed. Kept by the broker, not in rows; gone while it is silent."""
    found = circuits().all()
    failures = [(name, status_detail.failures) for name, status_detail in found.items()]
    yield _family("wms2_circuit_failures", "Failures in a row of a service, by circuit", "circuit", failures)
    is_open = [(name, float(status_detail.failures >= FAILURES)) for name, status_detail in found.items()]
    yield _family("wms2_circuit_open", "Whether a service is left alone but for probes, by circuit", "circuit", is_open)


def _service(rows: Rows) -> Iterator[Metric]:
    row = rows["service"][0] if rows["service"] else ServiceLevel()
    rank = list(Level).index(row.known)
    yield GaugeMetricFamily("wms2_service_level", "Control plane: 0 normal, 1 strained, 2 closed for new work", rank)
    yield GaugeMetricFamily("wms2_new_work_stopped", "Whether operators have switched new work off", int(bool(row.stopped_by)))
    yield GaugeMetricFamily("wms2_patience_factor", "By how much limits that judge others are stretched", stretch_of(row.trouble))
    yield _family("wms2_service_pressure", "Signals of overload as shares of their limits", "signal", row.pressures.items())


def _work(rows: Rows) -> Iterator[Metric]:
    """What waits for workers, by rows and not by the broker, and who is there to do it."""
    now = timezone.now()
    waits = {"celery": evaluations_due(), "effects": (_number(rows["due"]), _since(rows["due"], "first"))}
    pools, workers = rows["worker_pools"], rows["workers"]
    depth = [(pool, float(number)) for pool, (number, _) in waits.items()]
    yield _family("wms2_worker_pool_queue_depth", "Tasks that are due and not taken, by worker pool", "pool", depth)
    ages = [(pool, age_seconds(since, now)) for pool, (_, since) in waits.items()]
    yield _family("wms2_worker_pool_oldest_age_seconds", "How long the oldest of it has been due", "pool", ages)
    alive = [(pool.queue, float(sum(worker.serves(pool.queue) for worker in workers))) for pool in pools]
    yield _family("wms2_workers_alive", "Workers with a recent heartbeat", "pool", alive)
    short = [(pool.queue, age_seconds(pool.short_since, now)) for pool in pools]
    yield _family("wms2_worker_pool_short_seconds", "Since when no worker is alive; 0: one is", "pool", short)
    taking = [(pool.queue, float(pool.state in TAKING)) for pool in pools]
    yield _family("wms2_worker_pool_taking", "Whether the pool takes tasks: not while it is drained", "pool", taking)
    units = [(row["name"], row["units"]) for row in rows["resources"]]
    yield _family("wms2_resource_units", "Units of a resource that must not be oversubscribed", "resource", units)
    taken = [(row["name"], row["taken"] or 0) for row in rows["resources"]]
    yield _family("wms2_resource_units_taken", "Of these, leased", "resource", taken)
    dead_letters = dict.fromkeys(DeadLetterKind.values, 0) | {row["kind"]: row["number"] for row in rows["dead_letters"]}
    yield _family("wms2_dead_letters", "What no retry brings on any more, by kind", "kind", dead_letters.items())


def _lease(rows: Rows, name: str) -> Any:
    return next((row for row in rows["leases"] if row.name == name), None)


def _reqmgr2(rows: Rows) -> Iterator[Metric]:
    found = reqmgr2_of(_lease(rows, POLL))
    help_text = "Requests in ReqMgr2 that cannot be taken or followed"
    yield GaugeMetricFamily("wms2_reqmgr2_problems", help_text, _number(rows["reqmgr2"]))
    if found.age_seconds is not None:  # absent where it is not followed
        yield GaugeMetricFamily("wms2_reqmgr2_poll_age_seconds", "Since ReqMgr2 was last asked with success", found.age_seconds)


def _lifecycle(rows: Rows) -> Iterator[Metric]:
    skew = "How far the clock of the host that was scraped is ahead of the database's"
    yield GaugeMetricFamily("wms2_clock_skew_seconds", skew, clock.skew_seconds())
    state = lifecycle_of(_lease(rows, LEADER_LEASE))
    yield GaugeMetricFamily("wms2_lifecycle_leading", "Whether the life cycle's lease is held", float(state.leading))
    yield GaugeMetricFamily("wms2_lifecycle_epoch", "Changes of leader so far", state.lease.epoch)
    if state.cycle_age_seconds is not None:  # absent until the first cycle: an alert on absent() sees that
        yield GaugeMetricFamily("wms2_lifecycle_cycle_age_seconds", "Since the last cycle ended", state.cycle_age_seconds)
    now, ends = timezone.now(), "Until a credential ends; 0 when it cannot be used, negative when it has ended"
    left = [(each.name, each.left_seconds(now)) for each in state.credentials]
    yield _family("wms2_credential_expires_seconds", ends, "credential", left)


def registry() -> CollectorRegistry:
    """What one scrape shows.

    Where processes keep their counters in files (``wms2.metrics.files``), those of all of them, dead ones included; otherwise
    those of the process that answers. The gauges over rows are the same everywhere.
    """
    found = CollectorRegistry()
    found.register(AllProcesses() if directories() else REGISTRY)
    found.register(RowsCollector())
    return found


class AnyAccept(BaseContentNegotiation):
    """The encoder is chosen by prometheus_client; problems are JSON."""

    def select_parser(self, request: HttpRequest, parsers: Any) -> Any:
        """The only one."""
        return parsers[0]

    def select_renderer(self, request: HttpRequest, renderers: Iterable[BaseRenderer], format_suffix: str | None = None) -> Any:
        """The only one."""
        only = next(iter(renderers))
        return only, only.media_type


class MetricsView(APIView):
    """For Prometheus; a token like everywhere (``authorization: {type: Token, credentials: ...}``)."""

    content_negotiation_class = AnyAccept
    calls: ClassVar[Mapping[str, Call]] = {"get": Call.HEALTH}
    http_method_names = METHODS

    @extend_schema(responses={(200, "text/plain"): OpenApiResponse(OpenApiTypes.STR, description="Prometheus text format")})
    def get(self, request: HttpRequest) -> HttpResponse:
        """All metrics."""
        encode, content_type = choose_encoder(request.META.get("HTTP_ACCEPT", ""))
        return HttpResponse(encode(registry()), content_type=content_type)
