"""Admission, life cycle and status as JSON. Spec 7.2."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from requests_app.api.serializers import ReqMgr2Serializer
from requests_app.api.service import ServiceLevelSerializer
from sites_app.api.serializers import SystemicAlertSerializer
from sites_app.guard import alert_open
from sites_app.models import Health


class NextInQueueSerializer(serializers.Serializer):
    """Who starts when the next slot is free."""

    request_name = serializers.CharField()
    priority = serializers.IntegerField()
    queued_since = serializers.DateTimeField(source="queued_at", allow_null=True)


class AdmissionCountsSerializer(serializers.Serializer):
    """Slots and the queue's length."""

    active_dags = serializers.IntegerField(help_text="slots in use: live DAGs and requests being planned")
    max_active_dags = serializers.IntegerField()
    queued_workflows = serializers.IntegerField()
    pausing = serializers.IntegerField(help_text="of these, passed over until their next attempt")
    next_in_queue = NextInQueueSerializer(allow_null=True, help_text="the first that no limit keeps")
    stopped = serializers.CharField(allow_blank=True, help_text="why nobody may start, at the last pass; empty: who has its turn")


class QueuedSerializer(serializers.Serializer):
    """One queued request."""

    place = serializers.IntegerField(allow_null=True, help_text="from 1; null while it is passed over after a failure")
    request_name = serializers.CharField(source="request.request_name")
    priority = serializers.IntegerField(source="request.priority")
    urgent = serializers.BooleanField(source="request.urgent")
    campaign = serializers.CharField(source="request.campaign", allow_blank=True)
    requestor = serializers.CharField(source="request.requestor")
    queued_since = serializers.DateTimeField(source="request.queued_at", allow_null=True)
    waiting_for = serializers.CharField(source="request.waiting_for", allow_blank=True)
    next_attempt_at = serializers.DateTimeField(source="request.next_attempt_at", allow_null=True)
    failed_attempts = serializers.IntegerField(source="request.failed_attempts")
    last_error = serializers.CharField(source="request.last_error", allow_blank=True)
    risen_priority = serializers.IntegerField(allow_null=True, help_text="its priority with what waiting has added")
    band = serializers.CharField(allow_blank=True, help_text="of priorities; empty: none")
    expected_start = serializers.DateTimeField(allow_null=True, help_text="null: not known")
    expected_basis = serializers.CharField(allow_blank=True, help_text="what that rests on, or why it is not known")


class AdmissionQueueSerializer(AdmissionCountsSerializer):
    """Spec 7.2, admission queue, with one page of the queue."""

    next = serializers.URLField(allow_null=True)
    queue = QueuedSerializer(many=True)


class NumberField(serializers.FloatField):
    """A number as it is: a whole one without a fraction."""

    def to_representation(self, value: Any) -> Any:
        """``10``, not ``10.0``."""
        return value if isinstance(value, int) else super().to_representation(value)


class LimitSerializer(serializers.Serializer):
    """One limit in force."""

    group = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    value = NumberField()
    default = NumberField()
    changed_by = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    changed_at = serializers.DateTimeField(allow_null=True)


class LimitsInForceSerializer(serializers.Serializer):
    """Every limit that can be changed at run time."""

    limits = LimitSerializer(many=True)


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
    requests = serializers.IntegerField(source="last_cycle_requests", allow_null=True)


class LifecycleBriefSerializer(serializers.Serializer):
    """Who leads, and since when nothing happened."""

    holder = serializers.CharField(allow_blank=True)
    epoch = serializers.IntegerField()
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

    acquired_at = serializers.DateTimeField(allow_null=True)
    heartbeat_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    last_cycle = LastCycleSerializer(source="*")
    credentials = CredentialSerializer(many=True, help_text="the first to end comes first")
    schedds = serializers.SerializerMethodField()
    systemic_trouble = serializers.SerializerMethodField(help_text="the alert that goes on; null: none")

    @extend_schema_field(SystemicAlertSerializer(allow_null=True))
    def get_systemic_trouble(self, standing: Any) -> Any:
        """At most one goes on."""
        alert = alert_open()
        return SystemicAlertSerializer(alert).data if alert is not None else None

    @extend_schema_field(ScheddSerializer(many=True))
    def get_schedds(self, standing: Any) -> Any:
        """From the context."""
        return ScheddSerializer(self.context["schedds"], many=True).data


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
