"""REST of worker pools, shared resources and failing tasks; the verbs are made from ``wms2.work.verbs``."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import django_filters
from rest_framework import serializers

from wms2.api.filters import TextFilter
from wms2.api.views import RowsViewSet
from wms2.models import Resource, ResourceLease, Worker, WorkerPool
from wms2.work.workers import last_heartbeat_at, workers_alive


class WorkerPoolSerializer(serializers.ModelSerializer):
    """One queue of Celery."""

    computed_from: ClassVar = {"alive": "queue", "last_heartbeat_at": "queue"}
    alive = serializers.SerializerMethodField(help_text="workers that have told of themselves lately")
    last_heartbeat_at = serializers.SerializerMethodField(help_text="of any of its workers")

    class Meta:
        model = WorkerPool
        fields: tuple[str, ...] = (
            "queue", "state", "since", "reason", "alive", "last_heartbeat_at", "short_since",
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
    """Units of a resource that a process of WMS2 holds."""

    resource = serializers.CharField(source="resource_id")

    class Meta:
        model = ResourceLease
        fields: tuple[str, ...] = (
            "id", "resource", "units", "holder", "process", "ttl_seconds", "taken_at", "heartbeat_at", "expires_at",
        )  # fmt: skip


class LeaseFilters(django_filters.FilterSet):
    """Of one resource."""

    resource = TextFilter(field_name="resource_id", max_length=100)


class LeasesViewSet(RowsViewSet):
    """Leases of resources that must not be oversubscribed."""

    queryset = ResourceLease.objects.all()
    serializer_class = LeaseSerializer
    filterset_class = LeaseFilters
    ordering = ("-id",)
    ordering_fields = ("id", "expires_at")
