"""The life cycle, whole cycles of it, the service, drains of schedds, and the installation at a glance (spec 7.1, 7.2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.reverse import reverse

import requests_app.actions  # noqa: F401  declares them
from dags_app.api.schedds import POOL, SCHEDDS, schedd_asked
from dags_app.selectors import schedds_counted
from requests_app.api.parts import part_view
from requests_app.api.serializers import ReqMgr2Serializer
from requests_app.models import Reconciliation, ServiceLevel
from requests_app.selectors.drains import DrainProgress, drain_progress
from requests_app.selectors.lifecycle import LifecycleState, lifecycle_state
from requests_app.selectors.reqmgr2 import ReqMgr2State
from requests_app.selectors.summary import SystemSummary, system_summary
from requests_app.service_level import service_rows, stretch_of
from requests_app.services.reconciling import reconcile
from sites_app.api.serializers import SystemicAlertSerializer
from sites_app.guard import alerts_open
from sites_app.models import Health, Schedd
from wms2.api.actions import ActionView, Resource, action_method, action_urls, actor_of
from wms2.api.answers import Computed, answer, rows
from wms2.api.serializers import ReasonSerializer
from wms2.api.shown import shown
from wms2.api.views import ApiView
from wms2.runtime.credentials import Seen

ServiceLevelSerializer = rows(
    "ServiceLevel", ServiceLevel,
    "Its level with the signals of the last cycle, the switch, and the patience that trouble of the leader's host asks for.",
    "level", "reason", "since", "signals", "no_new_work", "stopped_by", "stopped_reason", "stopped_at", "stretch",
    "trouble_reason", "updated_at",
    no_new_work=serializers.CharField(allow_blank=True, help_text="why nothing new starts; empty when it may"),
    stretch=Computed(
        lambda row: stretch_of(row.trouble), serializers.FloatField(),
        help_text="factor for time limits that judge others, 1 to 3",
    ),
)  # fmt: skip
SERVICE_ACTIONS = action_urls(Resource(ServiceLevel, ServiceLevelSerializer, service_rows))
service_view = part_view(service_rows, ServiceLevelSerializer, lambda row: row, "As of the last cycle.")


OrphanSerializer = answer(
    "Orphan", {"dag_id": str, "request_name": str, "dagmans": int, "jobs": int, "why": str, "since": datetime},
    "Jobs in a schedd's queue that name a DAG that WMS2 does not run; nothing removes them.",
)  # fmt: skip
ScheddSerializer = answer(
    "Schedd", Schedd, "A schedd as last seen.",
    "name", "pool=pool_id", "state", "health", "health_reason", "health_since", "version", "live_dags", "dagmans_running",
    "strays", "max_dagman_slots", "dagmans_others", "owner_dagmans", "duty_cycle", "last_answer_at", "unreachable_since",
    "last_error", "collector_says", "job_queue_birthdate", "suspected_dags",
    pool=serializers.CharField(),
    health=serializers.ChoiceField(choices=Health.choices, help_text="degraded and unreachable ones get no new DAG"),
    live_dags=serializers.IntegerField(),
    strays=OrphanSerializer(source="orphans_reported", many=True, help_text="jobs of ours in its queue that no live DAG knows"),
    dagmans_others="DAGMans there that are not ours",
    owner_dagmans="that it runs of one owner at most",
    duty_cycle="0 to 1; near 1 it cannot keep up",
    collector_says="while it is silent: what the collector knows of it",
    job_queue_birthdate="Unix seconds; a change speaks for a lost queue",
    suspected_dags=serializers.IntegerField(help_text="live DAGs suspected lost; see schedds/{name}/loss"),
)  # fmt: skip
LastCycleSerializer = answer(
    "LastCycle", LifecycleState, "The last cycle that ended.",
    "started_at=last_cycle_started_at", "ended_at=last_cycle_ended_at", "seconds=last_cycle_seconds",
)  # fmt: skip
_LEADER = ("holder=lease.owner", "epoch=lease.epoch", "leading", "stale", "cycle_seconds", "cycle_age_seconds")
_LEADING: dict[str, Any] = {
    "leading": "the lease has not run out",
    "stale": "no cycle for longer than may be",
    "cycle_seconds": "how often a cycle is due",
}
CredentialSerializer = answer(
    "Credential", Seen, "A certificate, proxy or token as the leader last saw it.",
    ends_at="null: never, unless there is a problem",
)  # fmt: skip


def _alerts_shown(alerts: Any) -> Any:
    return SystemicAlertSerializer(alerts, many=True).data


LifecycleSerializer = answer(
    "Lifecycle", LifecycleState, "Spec 7.1, life cycle health.",
    *_LEADER, "lease.acquired_at", "lease.heartbeat_at", "lease.expires_at", "last_cycle", "credentials",
    **_LEADING,
    last_cycle=LastCycleSerializer(source="*"),
    credentials="the first to end comes first",
    schedds=Computed(
        lambda state: ScheddSerializer(schedds_counted(), many=True).data, ScheddSerializer(many=True)
    ),
    systemic_trouble=Computed(
        lambda state: next(iter(_alerts_shown(alerts_open()[:1])), None), SystemicAlertSerializer(allow_null=True),
        help_text="the first of systemic_troubles; null: none",
    ),
    systemic_troubles=Computed(
        lambda state: _alerts_shown(alerts_open()), SystemicAlertSerializer(many=True),
        help_text="systemic alerts that go on, one a pool at most, those that hold new work first",
    ),
)  # fmt: skip
LifecycleBriefSerializer = answer(
    "LifecycleBrief", LifecycleState, "Who leads, and since when nothing happened.", *_LEADER, **_LEADING
)
ReqMgr2StateSerializer = answer(
    "ReqMgr2State", ReqMgr2State, "How it stands with ReqMgr2.", "follows", "reports", "polled_at", "error",
    follows="staged requests of our team are taken, and followed",
    polled_at="the last poll that succeeded",
    error="of the last poll",
    problems=ReqMgr2Serializer(many=True, help_text="requests that cannot be taken or followed"),
)  # fmt: skip
SummarySerializer = answer(
    "Summary", SystemSummary, "The whole installation at a glance.",
    "instance", "environment", "requests", "workflows", "held", "alerted_requests", "dags_live", "blocks", "effects_open",
    "sites", "admission", "lifecycle", "reqmgr2", "service", "worker_pools", "dead_letters",
    requests="by status",
    workflows="by status",
    held="held requests by hold code",
    alerted_requests="requests with an alert that waits for a person",
    blocks="by status",
    effects_open="by state",
    sites="by status",
    lifecycle=LifecycleBriefSerializer(),
    service=ServiceLevelSerializer(help_text="level of the service, and whether new work may start"),
    worker_pools="those whose tasks wait, and why",
    dead_letters="by kind; see dead-letters",
)  # fmt: skip


class LifecycleView(ApiView):
    """Whether requests are being driven: leader, last cycle, schedds."""

    serializer_class = LifecycleSerializer

    def get(self, request: HttpRequest) -> Response:
        """As the rows have it."""
        return Response(self.get_serializer(lifecycle_state()).data)


class StatusView(ApiView):
    """The whole installation at a glance."""

    serializer_class = SummarySerializer

    def get(self, request: HttpRequest) -> Response:
        """Counts by status, and what waits for a person."""
        return Response(shown(SummarySerializer, system_summary()))


ReconciliationSerializer = rows(
    "Reconciliation", Reconciliation, "What was asked, and what came of it.",
    "id", "state", "asked_at", "asked_by", "reason", "asked", "begun_at", "ended_at", "found",
    state=serializers.CharField(help_text="waiting, running or ended"),
)  # fmt: skip


class ReconcileView(ApiView):
    """Whole cycles that are asked for."""

    serializer_class = ReconciliationSerializer

    @extend_schema(request=ReasonSerializer, responses={202: ReconciliationSerializer})
    def post(self, request: HttpRequest) -> Response:
        """Have the leader observe all schedds, look for orphans, admit, and evaluate every request ; asked twice, it is one."""
        data = ReasonSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        row = reconcile(actor=actor_of(request), **data.validated_data)
        location = reverse("reconciliation", [row.pk], request=request)
        return Response(self.get_serializer(row).data, status.HTTP_202_ACCEPTED, headers={"Location": location})


reconciliation_view = part_view(
    lambda: Reconciliation, ReconciliationSerializer, lambda row: row,
    "What it found and did, once it has ended: schedds, orphans, requests, events by kind.",
)  # fmt: skip


DrainSerializer = answer(
    "Drain", DrainProgress, "How far a drain is; of a schedd that does not drain, what one would concern.",
    "schedd.name", "pool=schedd.pool_id", "schedd.state", "schedd.drain_since", "schedd.drain_actor", "schedd.drain_reason",
    "at_once", "left", "moving", "moved", "finished", "queued", "held", "expected_end", "obstacle", "drained",
    at_once="DAGs that are moved at a time; 0: they run to their end",
    left="live DAGs there",
    moving="requests that are stopped to be moved and run nowhere else yet",
    moved="DAGs that went on elsewhere since it began",
    finished="DAGs that ended there since by themselves",
    queued="requests that wait to go on there",
    held="held requests whose DAG lies there; move them, or release them elsewhere",
    expected_end="at the pace so far; null while it cannot be estimated",
    obstacle="why nothing can be moved now",
    drained="nothing is left there",
)  # fmt: skip


class ScheddDrainView(ActionView):
    """Drain a schedd, and see how far that is."""

    serializer_class = DrainSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({POOL.name})
    post = action_method(replace(SCHEDDS, serializer=DrainSerializer, content=drain_progress), "drain")

    @extend_schema(parameters=[POOL])
    def get(self, request: HttpRequest, name: str) -> Response:
        """As the rows have it now; no schedd is asked."""
        return Response(DrainSerializer(drain_progress(schedd_asked(request, SCHEDDS.rows(), name))).data)
