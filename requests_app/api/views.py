"""Request and workflow endpoints (spec 7.1). Each parses, calls one service, and shows what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response
from rest_framework.reverse import reverse

from dags_app.counts import UnitCounts, unit_counts
from dags_app.selectors import dag_last
from requests_app.api.actions import REQUESTS, request_etag
from requests_app.api.filters import RequestFilters, WorkflowFilters
from requests_app.api.inputs import REQUEST_IMPORT, RequestChangeSerializer, import_serializer
from requests_app.api.serializers import (
    RequestListSerializer,
    RequestSerializer,
    WorkflowListSerializer,
    WorkflowProgressSerializer,
    WorkflowRoundsSerializer,
    WorkflowSerializer,
)
from requests_app.models import Request, status_shown
from requests_app.selectors.requests import request_detail, requests_with_workflow
from requests_app.selectors.rounds import rounds_of
from requests_app.selectors.workflows import workflow_progress, workflows_stored
from requests_app.services.decisions import request_change
from requests_app.services.intake import request_receive
from wms2.api.actions import action_method, actor_of
from wms2.api.shown import shown
from wms2.api.views import ApiView, RowsViewSet
from wms2.identities.denials import import_refusals_recorded
from wms2.web.shedding import Call

PATCHED = "changed over the API, no reason given"


class RequestViewSet(RowsViewSet):
    """Requests: what was asked, and where it stands."""

    serializer_class = RequestSerializer
    list_serializer_class = RequestListSerializer
    filterset_class = RequestFilters
    lookup_field = "request_name"
    calls: ClassVar[Mapping[str, Call]] = {"create": Call.SUBMIT, "retrieve": Call.RESULT, "destroy": Call.STOP}
    versioned: ClassVar[frozenset[str]] = frozenset({"retrieve", "partial_update", "destroy"})
    outside: ClassVar[frozenset[str]] = frozenset({"create"})
    ordering = ("-created_at",)
    ordering_fields = ("created_at", "updated_at", "status_since", "priority", "request_name", "status", "campaign", "attention")

    def get_queryset(self) -> Any:
        """Rows; the single one whole."""
        return requests_with_workflow() if self.action == "retrieve" else Request.objects.all()

    def known_query_params(self) -> frozenset[str]:
        """DELETE takes its reason in the query string too."""
        return super().known_query_params() | ({"reason"} if self.action == "destroy" else set())

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """Workflows with their work units."""
        known = [line["workflow"] for line in lines if line["workflow"]]
        units = unit_counts(known) if known else {}
        for line in lines:
            workflow, status = line["workflow"], line["work_units"]
            line["status_shown"] = status_shown(line["status"], line["status_shown"], line["completed_at"]).value
            line["workflow"] = {"id": workflow, "status": status} if workflow else None
            line["work_units"] = (units[workflow] if workflow else UnitCounts()).as_dict()

    @extend_schema(request=REQUEST_IMPORT, responses={201: RequestSerializer})
    def create(self, request: HttpRequest) -> Response:
        """Import a request: by name from ReqMgr2, or by document. Checked whole; nothing is stored when anything is wrong."""
        data = import_serializer(request.data)
        data.is_valid(raise_exception=True)
        received, actor = data.received(), actor_of(request)
        with import_refusals_recorded(actor, request._request, received.name):
            row = request_receive(received=received, actor=actor)
        location = reverse("request-detail", [row.request_name], request=request)
        return REQUESTS.shown(request, row, status.HTTP_201_CREATED, Location=location)

    def retrieve(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """One request with its transitions, workflow, ledger, and what it waits for."""
        row = self.get_object()
        return self.versioned_answer(request, shown(RequestSerializer, request_detail(row)), request_etag(row))

    @extend_schema(request=RequestChangeSerializer, responses={200: RequestSerializer})
    def partial_update(self, request: HttpRequest, request_name: str) -> Response:
        """Change priority, steps, adaptive rounds, or submit a new request (``{"status": "submitted"}``); all or nothing."""
        data = RequestChangeSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        asked = dict(data.validated_data)
        row, _ = REQUESTS.act(request, request_name, partial(_change, asked=asked, actor=actor_of(request)))
        return REQUESTS.shown(request, row, status.HTTP_200_OK)

    destroy = action_method(REQUESTS, "abort")


def _change(row: Request, *, asked: dict[str, Any], actor: str) -> None:
    request_change(
        request=row,
        actor=actor,
        reason=asked.get("reason", PATCHED),
        submit="status" in asked and row.status != asked["status"],
        priority=asked.get("priority"),
        steps=asked.get("production_steps"),
        confirm=asked["confirm"],
        adaptive=asked.get("adaptive"),
    )


class WorkflowViewSet(RowsViewSet):
    """Workflows: the typed work of each request."""

    queryset = workflows_stored()
    serializer_class = WorkflowSerializer
    list_serializer_class = WorkflowListSerializer
    filterset_class = WorkflowFilters
    ordering = ("-created_at",)
    ordering_fields = ("created_at", "updated_at", "status", "requested_events")

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """Their work units."""
        units = unit_counts([line["id"] for line in lines])
        for line in lines:
            line["work_units"] = units[line["id"]].as_dict()


class WorkflowRoundsView(ApiView):
    """The rounds of a workflow: sizes, decisions, measurements."""

    serializer_class = WorkflowRoundsSerializer

    def get(self, request: HttpRequest, pk: Any) -> Response:
        """The first one first."""
        workflow = get_object_or_404(workflows_stored().defer("spec"), pk=pk)
        return Response(shown(WorkflowRoundsSerializer, {"workflow_id": workflow.pk, "rounds": rounds_of(workflow)}))


class WorkflowStatusView(ApiView):
    """Where a workflow stands: DAG, blocks, progress, an estimate."""

    serializer_class = WorkflowProgressSerializer

    def get(self, request: HttpRequest, pk: Any) -> Response:
        """Counted now."""
        workflow = get_object_or_404(workflows_stored().defer("spec"), pk=pk)
        return Response(shown(WorkflowProgressSerializer, workflow_progress(workflow, dag_last(workflow.pk))))
