"""DAG endpoints (spec 7.1); the operations are made from ``dags_app.actions`` and ``requests_app.actions``."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from dags_app import live
from dags_app.api.filters import DagFilters
from dags_app.api.serializers import DagListSerializer, DagLogsSerializer, DagNodesSerializer, DagSerializer
from dags_app.dagman import NodeState
from dags_app.models import DAG
from dags_app.packs import files_like
from dags_app.payload.contract import layout
from dags_app.selectors import dags_shown, failed_nodes, seen_at
from wms2.api.actions import LISTED, Resource
from wms2.api.pagination import PAGE_PARAMETERS, NumberedPages, whole_number, whole_number_parameter
from wms2.api.preconditions import etag_of
from wms2.api.problems import bad_field
from wms2.api.views import ApiView, RowsViewSet

STATES = {state.name.lower(): state for state in NodeState}
DEFAULT_LINES = 200


def dag_etag(dag: DAG) -> str:
    """Without the counts, which move by themselves; with the state of its DAGMan job, which a pause changes."""
    return etag_of(
        dag.pk, dag.fence, dag.attempt, dag.status, dag.dagman_cluster_id, dag.queue_birthdate, dag.observed.get("job_status"),
        dag.stop_requested_at, dag.stop_mode, dag.missing_since, dag.suspected_at, dag.lost_confirmed_at,
    )  # fmt: skip


#: Not locked while its version is compared: a schedd is asked next, and each of these operations may be done twice.
DAGS = Resource(DAG, DagSerializer, lambda: dags_shown().prefetch_related("history"), etag=dag_etag, locks=False)
LISTED["dags"] = DAGS, DagFilters


class DagViewSet(RowsViewSet):
    """DAG submissions; a rescue is a row of its own."""

    serializer_class = DagSerializer
    list_serializer_class = DagListSerializer
    filterset_class = DagFilters
    versioned: ClassVar[frozenset[str]] = frozenset({"retrieve"})
    ordering = ("-created_at",)
    ordering_fields = ("created_at", "status", "total_work_units")

    def get_queryset(self) -> Any:
        """Without the workflow's large columns."""
        rows = dags_shown()
        return (
            rows.prefetch_related("history")
            if self.action == "retrieve"
            else rows.annotate(last_seen_at=seen_at(), inner_failed=failed_nodes())
        )

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One DAG with its history."""
        dag = self.get_object()
        return self.versioned_answer(request, self.get_serializer(dag).data, dag_etag(dag))


class DagNodesView(ApiView):
    """The nodes as DAGMan's status files have them now."""

    serializer_class = DagNodesSerializer
    query_params: ClassVar[frozenset[str]] = NumberedPages.params | {"state"}

    @extend_schema(
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("state", str, enum=sorted(STATES), description="only work units in this state"),
        ]
    )
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        """Work units by name, a page at a time, each with its inner nodes."""
        dag = get_object_or_404(dags_shown(), pk=pk)
        state = request.query_params.get("state")
        if state is not None and state not in STATES:
            raise bad_field("state", f"must be one of: {', '.join(sorted(STATES))}")
        reading = live.outer_status(dag)
        pager = NumberedPages()
        nodes = [node for node in reading.nodes if state is None or node.state is STATES[state]]
        body = {
            "dag_id": dag.pk,
            "request_name": dag.workflow.request_id,
            "status": dag.status,
            "outer": reading,
            "queue": dag,
            "results": [
                {**node._asdict(), "inner": live.unit_status(dag, node.name) if live.UNIT_NAME.fullmatch(node.name) else None}
                for node in pager.paginate_queryset(nodes, request)
            ],
            "next": pager.next_link(),
        }
        return Response(self.get_serializer(body).data)


class DagLogsView(ApiView):
    """DAGMan's logs: where they are, and their end."""

    serializer_class = DagLogsSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"lines", "unit"})

    @extend_schema(
        parameters=[
            whole_number_parameter("lines", DEFAULT_LINES, live.MAX_TAIL_LINES, "of the tail"),
            OpenApiParameter(
                "unit",
                {"type": "string", "pattern": f"^{live.UNIT_NAME.pattern}$"},
                description="a work unit, e.g. mg_000000: the tail of its own DAGMan's log",
            ),
        ]
    )
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        """Paths, and at most ``lines`` lines or 256 KB of the log's end."""
        dag = get_object_or_404(DAG, pk=pk)
        lines = whole_number(request, "lines", DEFAULT_LINES, live.MAX_TAIL_LINES)
        unit = request.query_params.get("unit")
        if unit is not None and not live.UNIT_NAME.fullmatch(unit):
            raise bad_field("unit", "must be a work unit's name like mg_000000")
        tail = live.dagman_log_tail(dag, unit=unit, lines=lines)
        # logs, metrics, rescues of the outer DAG; none when the directory is gone
        files = files_like(dag.submit_dir, f"{layout.OUTER_DAG}.*", layout.JOBSTATE_LOG)
        body = {"dag_id": dag.pk, "submit_dir": dag.submit_dir, "files": files, "tail": tail}
        return Response(self.get_serializer(body).data)
