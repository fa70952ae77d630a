"""One schedd, its operations, and the evidence that its queue may be lost (spec 6.3; spec 15, question 9)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

import dags_app.actions  # noqa: F401  declares them
from dags_app.services.lost_queue import DirectoryEvidence, LostDag, LostQueue, lost_queue_of
from sites_app.api.serializers import ScheddRowSerializer
from sites_app.api.views import REMOVED_SCHEDD
from sites_app.models import QueueChange, Schedd
from wms2.api.actions import Resource, action_urls
from wms2.api.answers import answer, rows
from wms2.api.problems import bad_field
from wms2.api.views import ApiView

POOL = OpenApiParameter("pool", str, description="the schedd's pool; needed when schedds of several pools have the name")


QueueChangeSerializer = rows(
    "QueueChange", QueueChange, "The schedd answered with another job queue than before.",
    "old_birthdate", "new_birthdate", "old_answered_at", "dagmans_before", "seen_at",
)  # fmt: skip
DirectoryEvidenceSerializer = answer(
    "DirectoryEvidence", DirectoryEvidence, "What DAGMan left in a DAG's directory.",
    written_at="when DAGMan wrote last",
    lock="cluster that holds the directory",
    metrics="cluster that left the metrics file",
    rescue="newest rescue file",
    damaged="files that are there and not whole",
    problem="why nothing can be read",
)  # fmt: skip
LostDagSerializer = answer(
    "LostDag", LostDag, "One DAG at the schedd.",
    "dag_id=dag.pk", "request_name=dag.workflow.request_id", "dag.dagman_cluster_id", "affected", "why", "dag.missing_since",
    "dag.unanswered_since", "dag.suspected_at", "directory",
    affected="a confirmation now would give it up",
)  # fmt: skip
LossesSerializer = answer(
    "Losses", LostQueue, "What speaks for and against the loss of a schedd's queue.",
    "schedd.name", "pool=schedd.pool_id", "schedd.job_queue_birthdate", "schedd.last_answer_at", "schedd.unreachable_since",
    "schedd.collector_says", "queue_changes", "dags", "refusal",
    queue_changes=QueueChangeSerializer(source="changes", many=True),
    refusal="why a loss cannot be confirmed now; empty when it can",
)  # fmt: skip


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
        rows = rows.filter(pool=request.query_params["pool"])
    if rows.count() > 1:
        raise bad_field("pool", f"schedds of several pools are called {name}; name the pool")
    return get_object_or_404(rows)


SCHEDDS = Resource(Schedd, ScheddRowSerializer, Schedd.objects.all, find=schedd_asked, parameters=(POOL,))
#: All but the drain, which moves requests.
SCHEDD_ACTIONS = action_urls(
    SCHEDDS, "drain", answers={"lost": (LossesSerializer, lambda schedd, losses, given: losses), "remove": REMOVED_SCHEDD}
)
