"""One schedd, its verbs, and the evidence that its queue may be lost (spec 6.3; spec 15, question 9)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

import dags_app.verbs  # noqa: F401  declares them
from dags_app.services.lost_queue import lost_queue_of
from sites_app.api.serializers import ScheddRowSerializer
from sites_app.api.views import REMOVED_SCHEDD
from sites_app.models import QueueChange, Schedd
from wms2.api.problems import bad_field
from wms2.api.verbs import Resource, verb_urls
from wms2.api.views import ApiView

POOL = OpenApiParameter("pool", str, description="the schedd's pool; needed when schedds of several pools have the name")


class QueueChangeSerializer(serializers.ModelSerializer):
    """The schedd answered with another job queue than before."""

    class Meta:
        model = QueueChange
        fields: tuple[str, ...] = ("old_birthdate", "new_birthdate", "old_answered_at", "dagmans_before", "seen_at")


class DirectoryEvidenceSerializer(serializers.Serializer):
    """What DAGMan left in a DAG's directory."""

    written_at = serializers.DateTimeField(allow_null=True, help_text="when DAGMan wrote last")
    lock = serializers.CharField(allow_blank=True, help_text="cluster that holds the directory")
    metrics = serializers.CharField(allow_blank=True, help_text="cluster that left the metrics file")
    rescue = serializers.CharField(allow_blank=True, help_text="newest rescue file")
    units = serializers.CharField(allow_blank=True)
    damaged = serializers.CharField(allow_blank=True, help_text="files that are there and not whole")
    problem = serializers.CharField(allow_blank=True, help_text="why nothing can be read")


class LostDagSerializer(serializers.Serializer):
    """One DAG at the schedd."""

    dag_id = serializers.UUIDField(source="dag.pk")
    request_name = serializers.CharField()
    dagman_cluster_id = serializers.CharField(source="dag.dagman_cluster_id", allow_blank=True)
    affected = serializers.BooleanField(help_text="a confirmation now would give it up")
    why = serializers.CharField()
    missing_since = serializers.DateTimeField(source="dag.missing_since", allow_null=True)
    unanswered_since = serializers.DateTimeField(source="dag.unanswered_since", allow_null=True)
    suspected_at = serializers.DateTimeField(source="dag.suspected_at", allow_null=True)
    directory = DirectoryEvidenceSerializer()


class LossesSerializer(serializers.Serializer):
    """What speaks for and against the loss of a schedd's queue."""

    name = serializers.CharField(source="schedd.name")
    pool = serializers.CharField(source="schedd.pool_id")
    job_queue_birthdate = serializers.IntegerField(source="schedd.job_queue_birthdate", allow_null=True)
    last_answer_at = serializers.DateTimeField(source="schedd.last_answer_at", allow_null=True)
    unreachable_since = serializers.DateTimeField(source="schedd.unreachable_since", allow_null=True)
    collector_says = serializers.CharField(source="schedd.collector_says", allow_blank=True)
    queue_changes = QueueChangeSerializer(source="changes", many=True)
    dags = LostDagSerializer(many=True)
    refusal = serializers.CharField(allow_blank=True, help_text="why a loss cannot be confirmed now; empty when it can")


class ScheddView(ApiView):
    """One schedd."""

    serializer_class = ScheddRowSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"pool"})

    @extend_schema(parameters=[POOL])
    def get(self, request: HttpRequest, name: str) -> Response:
        """With its checks, newest first."""
        return Response(self.get_serializer(schedd_asked(request, Schedd.objects.all(), name)).data)


class ScheddLossView(ApiView):
    """The evidence on a schedd's queue."""

    serializer_class = LossesSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"pool"})

    @extend_schema(parameters=[POOL])
    def get(self, request: HttpRequest, name: str) -> Response:
        """As rows and DAG directories have it now; no schedd is asked."""
        return Response(self.get_serializer(lost_queue_of(schedd_asked(request, Schedd.objects.all(), name))).data)


def schedd_asked(request: HttpRequest, rows: QuerySet[Schedd], name: str) -> Any:
    """The schedd of this name, in the pool that is asked for if several have one."""
    rows = rows.filter(name=name)
    if "pool" in request.query_params:
        if "\x00" in request.query_params["pool"]:  # PostgreSQL takes it in no text
            raise bad_field("pool", "null characters are not allowed")
        rows = rows.filter(pool=request.query_params["pool"])
    if rows.count() > 1:
        raise bad_field("pool", f"schedds of several pools are called {name}; name the pool")
    return get_object_or_404(rows)


SCHEDDS = Resource(Schedd, ScheddRowSerializer, Schedd.objects.all, find=schedd_asked, parameters=(POOL,))
#: All but the drain, which moves requests.
VERBS = verb_urls(
    SCHEDDS, "drain", answers={"lost": (LossesSerializer, lambda schedd, losses, given: losses), "remove": REMOVED_SCHEDD}
)
