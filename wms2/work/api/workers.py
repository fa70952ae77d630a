"""REST of worker pools, shared resources and failing tasks; the operations are made from ``wms2.work.actions``."""

from __future__ import annotations

from typing import Any

import django_filters
from rest_framework import serializers

from wms2.api.answers import Computed, rows
from wms2.api.filters import TextFilter
from wms2.api.views import RowsViewSet
from wms2.models import Resource, ResourceLease, Worker, WorkerPool
from wms2.work.workers import last_heartbeat_at, workers_alive

WorkerPoolSerializer = rows(
    "WorkerPool", WorkerPool, "One queue of Celery.",
    "queue", "state", "since", "reason", "alive", "last_heartbeat_at", "short_since",
    alive=Computed(
        lambda pool: len(workers_alive(pool.queue)), serializers.IntegerField(), column="queue",
        help_text="workers with a recent heartbeat",
    ),
    last_heartbeat_at=Computed(
        lambda pool: last_heartbeat_at(pool.queue), serializers.DateTimeField(allow_null=True), column="queue",
        help_text="of any of its workers",
    ),
)  # fmt: skip


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


WorkerSerializer = rows(
    "Worker", Worker, "One worker.", "name", "queues", "takes", "busy", "processes", "started_at", "heartbeat_at"
)


class WorkerViewSet(RowsViewSet):
    """Workers, by their last heartbeat; dead ones for a day."""

    queryset = Worker.objects.all()
    serializer_class = WorkerSerializer
    ordering = ("name",)
    ordering_fields = ("name", "heartbeat_at")


ResourceSerializer = rows("Resource", Resource, "Something that must not be oversubscribed.", "name", "units", "unit", "reason")


class ResourceViewSet(RowsViewSet):
    """Resources, and how much of them there is."""

    queryset = Resource.objects.all()
    serializer_class = ResourceSerializer
    ordering = ("name",)
    ordering_fields = ("name",)


LeaseSerializer = rows(
    "Lease", ResourceLease, "Units of a resource that a process of WMS2 holds.",
    "id", "resource=resource_id", "units", "holder", "process", "ttl_seconds", "taken_at", "heartbeat_at", "expires_at",
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
