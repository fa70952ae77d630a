"""REST of worker pools, shared resources and failing tasks; the verbs are made from ``wms2.work.verbs``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import django_filters
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from wms2.api.filters import TextFilter
from wms2.api.problems import Problem, ProblemError
from wms2.api.serializers import StrictSerializer, TextField
from wms2.api.verbs import actor_of
from wms2.api.views import ApiView, RowsViewSet
from wms2.audit import audit
from wms2.errors import NoneFree
from wms2.models import Resource, ResourceLease, Worker, WorkerPool
from wms2.shedding import Call
from wms2.work.resources import OWN, lease_beat, lease_release, lease_take
from wms2.work.workers import last_heartbeat_at, workers_alive

#: When somebody who got no lease may ask again.
_RETRY_AFTER_SECONDS = 5
#: For so long somebody outside may have of what planning and registration need, without a heartbeat.
_MOST_OF_OWN_SECONDS = 600


class WorkerPoolSerializer(serializers.ModelSerializer):
    """One queue of Celery."""

    computed_from: ClassVar = {"alive": "queue", "last_heartbeat_at": "queue"}
    alive = serializers.SerializerMethodField(help_text="workers that have told of themselves lately")
    last_heartbeat_at = serializers.SerializerMethodField(help_text="of any of its workers")

    class Meta:
        model = WorkerPool
        fields: tuple[str, ...] = (
            "queue", "state", "since", "reason", "desired", "alive", "processes", "last_heartbeat_at", "short_since",
        )  # fmt: skip

    def get_alive(self, pool: WorkerPool) -> int:
        """As their rows have it."""
        return len(workers_alive(pool.queue))

    def get_last_heartbeat_at(self, pool: WorkerPool) -> datetime | None:
        """Of dead ones, too."""
        return last_heartbeat_at(pool.queue)


class WorkerPoolViewSet(RowsViewSet):
    """Worker pools: what is wanted, and who is alive."""

    queryset = WorkerPool.objects.all()
    serializer_class = WorkerPoolSerializer
    ordering = ("queue",)
    ordering_fields = ("queue", "state")

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """There are few."""
        for line in lines:
            line["alive"], line["last_heartbeat_at"] = len(workers_alive(line["queue"])), last_heartbeat_at(line["queue"])


class WorkerSerializer(serializers.ModelSerializer):
    """One worker."""

    class Meta:
        model = Worker
        fields: tuple[str, ...] = ("name", "queues", "takes", "busy", "processes", "started_at", "heartbeat_at")


class WorkerViewSet(RowsViewSet):
    """Workers, by what they last told; dead ones for a day."""

    queryset = Worker.objects.all()
    serializer_class = WorkerSerializer
    ordering = ("name",)
    ordering_fields = ("name", "heartbeat_at")


class ResourceSerializer(serializers.ModelSerializer):
    """Something that must not be oversubscribed."""

    class Meta:
        model = Resource
        fields: tuple[str, ...] = ("name", "units", "unit", "reason")


class ResourceViewSet(RowsViewSet):
    """Resources, and how much of them there is."""

    queryset = Resource.objects.all()
    serializer_class = ResourceSerializer
    ordering = ("name",)
    ordering_fields = ("name",)


class LeaseSerializer(serializers.ModelSerializer):
    """Units that somebody has; the token is told to whoever takes them."""

    resource = serializers.CharField(source="resource_id")

    class Meta:
        model = ResourceLease
        fields: tuple[str, ...] = (
            "id", "resource", "units", "holder", "process", "ttl_seconds", "taken_at", "heartbeat_at", "expires_at",
        )  # fmt: skip


class LeaseFilters(django_filters.FilterSet):
    """Of one resource."""

    resource = TextFilter(field_name="resource_id", max_length=100)


class TakenSerializer(LeaseSerializer):
    """A lease that was just taken, or prolonged."""

    granted = serializers.BooleanField(default=True)

    class Meta(LeaseSerializer.Meta):
        fields: tuple[str, ...] = ("granted", "token", *LeaseSerializer.Meta.fields)


class TakeSerializer(StrictSerializer):
    """What is asked for."""

    resource = TextField(max_length=100)
    units = serializers.IntegerField(min_value=1, max_value=10**9, default=1)
    holder = TextField(max_length=300, help_text="what it is for")
    ttl_seconds = serializers.FloatField(min_value=1, max_value=86_400, default=60, help_text="lost after this without heartbeat")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """What nobody reports on must not stop all planning, or all registrations, for a day."""
        if attrs["resource"] in OWN and attrs["ttl_seconds"] > _MOST_OF_OWN_SECONDS:
            raise serializers.ValidationError(
                {"ttl_seconds": f"at most {_MOST_OF_OWN_SECONDS} of what WMS2 itself needs; report"}
            )
        return attrs


class LeasesViewSet(RowsViewSet):
    """Leases of resources that must not be oversubscribed."""

    queryset = ResourceLease.objects.all()
    serializer_class = LeaseSerializer
    filterset_class = LeaseFilters
    ordering = ("-id",)
    ordering_fields = ("id", "expires_at")

    @extend_schema(request=TakeSerializer, responses={201: TakenSerializer})
    def create(self, request: Request) -> Response:
        """Take units of a resource for a time; 409 with ``Retry-After`` while others have them."""
        data = TakeSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        asked = data.validated_data
        name = asked.pop("resource")
        try:
            lease = lease_take(name=name, process=actor_of(request), **asked)
        except NoneFree as error:
            problem = Problem(409, "none_free", str(error), hint="Ask again later; nothing is kept for you meanwhile.")
            raise ProblemError(problem, {"Retry-After": str(_RETRY_AFTER_SECONDS)}) from error
        actor = actor_of(request)
        audit(actor=actor, action="lease_take", target=name, target_type="resource", holder=lease.holder, units=lease.units)
        return Response(TakenSerializer(lease).data, 201)


class LeaseHeartbeatView(ApiView):
    """Whoever has a lease reports."""

    serializer_class = TakenSerializer
    calls: ClassVar[Mapping[str, Call]] = {"post": Call.HEALTH}

    @extend_schema(request=None)
    def post(self, request: Request, token: UUID) -> Response:
        """Have it for its time again. 404 if it has run out or was taken back: stop what it was for."""
        if not lease_beat(token):
            raise Http404("there is no such lease any more: stop what it was for, and take another")
        return Response(self.get_serializer(get_object_or_404(ResourceLease.objects.all(), token=token)).data)


class LeaseReleaseView(ApiView):
    """Whoever has a lease gives it back."""

    serializer_class = LeaseSerializer
    calls: ClassVar[Mapping[str, Call]] = {"post": Call.HEALTH}

    @extend_schema(request=None)
    def post(self, request: Request, token: UUID) -> Response:
        """Its units are free at once."""
        lease = get_object_or_404(ResourceLease.objects.all(), token=token)
        lease_release(lease=lease, actor=actor_of(request), reason="given back")
        return Response(self.get_serializer(lease).data)
