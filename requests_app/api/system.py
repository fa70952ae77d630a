"""The life cycle, whole cycles of it, the service, drains of schedds, and the installation at a glance (spec 7.1, 7.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.reverse import reverse

import requests_app.verbs  # noqa: F401  declares them
from dags_app.api.schedds import POOL, SCHEDDS, schedd_asked
from dags_app.selectors import schedds_counted
from requests_app.api.admission import AdmissionCountsSerializer
from requests_app.api.parts import part_view
from requests_app.api.serializers import ReqMgr2Serializer
from requests_app.models import Reconciliation, ServiceLevel
from requests_app.selectors.drains import drain_progress
from requests_app.selectors.lifecycle import lifecycle_state
from requests_app.selectors.summary import system_summary
from requests_app.service_level import service_rows, stretch_of
from requests_app.services.reconciling import reconcile
from sites_app.api.serializers import SystemicAlertSerializer
from sites_app.guard import alerts_open
from sites_app.models import Health
from wms2.api.serializers import ReasonSerializer
from wms2.api.shown import shown
from wms2.api.verbs import Resource, VerbView, actor_of, verb_method, verb_urls
from wms2.api.views import ApiView


class ServiceLevelSerializer(serializers.ModelSerializer):
    """Its level with the signals of the last cycle, the switch, and the patience that trouble of the leader's host asks for."""

    no_new_work = serializers.CharField(allow_blank=True, help_text="why nothing new starts; empty when it may")
    stretch = serializers.SerializerMethodField(help_text="factor for time limits that judge others, 1 to 3")

    class Meta:
        model = ServiceLevel
        fields: tuple[str, ...] = (
            "level", "reason", "since", "signals", "no_new_work", "stopped_by", "stopped_reason", "stopped_at", "stretch",
            "trouble_reason", "updated_at",
        )  # fmt: skip

    def get_stretch(self, row: ServiceLevel) -> float:
        """Of its trouble."""
        return stretch_of(row.trouble)


SERVICE_VERBS = verb_urls(Resource(ServiceLevel, ServiceLevelSerializer, service_rows))
service_view = part_view(service_rows, ServiceLevelSerializer, lambda row: row, "As of the last cycle.")


class OrphanSerializer(serializers.Serializer):
    """Jobs in a schedd's queue that name a DAG nobody runs; nothing removes them."""

    dag_id = serializers.CharField(allow_blank=True)
    request_name = serializers.CharField(allow_blank=True)
    dagmans = serializers.IntegerField()
    jobs = serializers.IntegerField()
    why = serializers.CharField()
    since = serializers.DateTimeField()


class ScheddSerializer(serializers.Serializer):
    """A schedd as last seen."""

    name = serializers.CharField()
    pool = serializers.CharField()
    state = serializers.CharField()
    health = serializers.ChoiceField(choices=Health.choices, help_text="degraded and unreachable ones get no new DAG")
    health_reason = serializers.CharField(allow_blank=True)
    health_since = serializers.DateTimeField(allow_null=True)
    version = serializers.CharField(allow_blank=True)
    live_dags = serializers.IntegerField()
    dagmans_running = serializers.IntegerField()
    strays = OrphanSerializer(source="orphans_told", many=True, help_text="jobs of ours in its queue that no live DAG knows")
    max_dagman_slots = serializers.IntegerField()
    dagmans_others = serializers.IntegerField(help_text="DAGMans there that are not ours")
    owner_dagmans = serializers.IntegerField(allow_null=True, help_text="that it runs of one owner at most")
    duty_cycle = serializers.FloatField(allow_null=True, help_text="0 to 1; near 1 it cannot keep up")
    last_answer_at = serializers.DateTimeField(allow_null=True)
    unreachable_since = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(allow_blank=True)
    collector_says = serializers.CharField(allow_blank=True, help_text="while it is silent: what the collector knows of it")
    job_queue_birthdate = serializers.IntegerField(allow_null=True, help_text="Unix seconds; a change speaks for a lost queue")
    suspected_dags = serializers.IntegerField(help_text="live DAGs suspected lost; see schedds/{name}/loss")


class LastCycleSerializer(serializers.Serializer):
    """The last cycle that ended."""

    started_at = serializers.DateTimeField(source="last_cycle_started_at", allow_null=True)
    ended_at = serializers.DateTimeField(source="last_cycle_ended_at", allow_null=True)
    seconds = serializers.FloatField(source="last_cycle_seconds", allow_null=True)


class LifecycleBriefSerializer(serializers.Serializer):
    """Who leads, and since when nothing happened."""

    holder = serializers.CharField(source="lease.owner", allow_blank=True)
    epoch = serializers.IntegerField(source="lease.epoch")
    leading = serializers.BooleanField(help_text="the lease has not run out")
    stale = serializers.BooleanField(help_text="no cycle for longer than may be")
    cycle_seconds = serializers.FloatField(help_text="how often a cycle is due")
    cycle_age_seconds = serializers.FloatField(allow_null=True)


class CredentialSerializer(serializers.Serializer):
    """A certificate, proxy or token as the leader last saw it."""

    name = serializers.CharField()
    path = serializers.CharField()
    ends_at = serializers.DateTimeField(allow_null=True, help_text="null: never, unless there is a problem")
    problem = serializers.CharField(allow_blank=True)


class LifecycleSerializer(LifecycleBriefSerializer):
    """Spec 7.1, life cycle health."""

    acquired_at = serializers.DateTimeField(source="lease.acquired_at", allow_null=True)
    heartbeat_at = serializers.DateTimeField(source="lease.heartbeat_at", allow_null=True)
    expires_at = serializers.DateTimeField(source="lease.expires_at", allow_null=True)
    last_cycle = LastCycleSerializer(source="*")
    credentials = CredentialSerializer(many=True, help_text="the first to end comes first")
    schedds = serializers.SerializerMethodField()
    systemic_trouble = serializers.SerializerMethodField(help_text="the first of systemic_troubles; null: none")
    systemic_troubles = serializers.SerializerMethodField(
        help_text="systemic alerts that go on, one a pool at most, those that hold new work first"
    )

    @extend_schema_field(SystemicAlertSerializer(allow_null=True))
    def get_systemic_trouble(self, standing: Any) -> Any:
        """Of one pool, or of all."""
        alert = alerts_open().first()
        return SystemicAlertSerializer(alert).data if alert is not None else None

    @extend_schema_field(SystemicAlertSerializer(many=True))
    def get_systemic_troubles(self, standing: Any) -> Any:
        """Those that are over are among the systemic alerts."""
        return SystemicAlertSerializer(alerts_open(), many=True).data

    @extend_schema_field(ScheddSerializer(many=True))
    def get_schedds(self, standing: Any) -> Any:
        """With their DAGs counted."""
        return ScheddSerializer(schedds_counted(), many=True).data


class ReqMgr2StateSerializer(serializers.Serializer):
    """How it stands with ReqMgr2."""

    follows = serializers.BooleanField(help_text="staged requests of our team are taken, and followed")
    reports = serializers.BooleanField()
    polled_at = serializers.DateTimeField(allow_null=True, help_text="the last poll that succeeded")
    error = serializers.CharField(allow_blank=True, help_text="of the last poll")
    problems = ReqMgr2Serializer(many=True, help_text="requests that cannot be taken or followed")


class SummarySerializer(serializers.Serializer):
    """The whole installation at a glance."""

    instance = serializers.CharField()
    environment = serializers.CharField()
    requests = serializers.DictField(child=serializers.IntegerField(), help_text="by status")
    workflows = serializers.DictField(child=serializers.IntegerField(), help_text="by status")
    held = serializers.DictField(child=serializers.IntegerField(), help_text="held requests by hold code")
    alerted_requests = serializers.IntegerField(help_text="requests with an alert that waits for a person")
    dags_live = serializers.IntegerField()
    blocks = serializers.DictField(child=serializers.IntegerField(), help_text="by status")
    effects_open = serializers.DictField(child=serializers.IntegerField(), help_text="by state")
    sites = serializers.DictField(child=serializers.IntegerField(), help_text="by status")
    admission = AdmissionCountsSerializer()
    lifecycle = LifecycleBriefSerializer()
    reqmgr2 = ReqMgr2StateSerializer()
    service = ServiceLevelSerializer(help_text="level of the service, and whether new work may start")
    worker_pools = serializers.DictField(child=serializers.CharField(), help_text="those whose tasks wait, and why")
    dead_letters = serializers.DictField(child=serializers.IntegerField(), help_text="by kind; see dead-letters")


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


class ReconciliationSerializer(serializers.ModelSerializer):
    """What was asked, and what came of it."""

    state = serializers.CharField(help_text="waiting, running or ended")

    class Meta:
        model = Reconciliation
        fields: tuple[str, ...] = ("id", "state", "asked_at", "asked_by", "reason", "asked", "begun_at", "ended_at", "found")


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


class DrainSerializer(serializers.Serializer):
    """How far a drain is; of a schedd that does not drain, what one would concern."""

    name = serializers.CharField(source="schedd.name")
    pool = serializers.CharField(source="schedd.pool_id")
    state = serializers.CharField(source="schedd.state")
    drain_since = serializers.DateTimeField(source="schedd.drain_since", allow_null=True)
    drain_actor = serializers.CharField(source="schedd.drain_actor", allow_blank=True)
    drain_reason = serializers.CharField(source="schedd.drain_reason", allow_blank=True)
    at_once = serializers.IntegerField(help_text="DAGs that are moved at a time; 0: they run to their end")
    left = serializers.IntegerField(help_text="live DAGs there")
    moving = serializers.IntegerField(help_text="requests that are stopped to be moved and run nowhere else yet")
    moved = serializers.IntegerField(help_text="DAGs that went on elsewhere since it began")
    finished = serializers.IntegerField(help_text="DAGs that ended there since by themselves")
    queued = serializers.IntegerField(help_text="requests that wait to go on there")
    held = serializers.IntegerField(help_text="held requests whose DAG lies there; move them, or release them elsewhere")
    expected_end = serializers.DateTimeField(allow_null=True, help_text="at the pace so far; null while nobody can tell")
    obstacle = serializers.CharField(allow_blank=True, help_text="why nothing can be moved now")
    drained = serializers.BooleanField(help_text="nothing is left there")


class ScheddDrainView(VerbView):
    """Drain a schedd, and see how far that is."""

    serializer_class = DrainSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({POOL.name})
    post = verb_method(replace(SCHEDDS, serializer=DrainSerializer, picture=drain_progress), "drain")

    @extend_schema(parameters=[POOL])
    def get(self, request: HttpRequest, name: str) -> Response:
        """As the rows have it now; no schedd is asked."""
        return Response(DrainSerializer(drain_progress(schedd_asked(request, SCHEDDS.rows(), name))).data)
