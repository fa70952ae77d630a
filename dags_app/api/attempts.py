"""One attempt of a node, from the files it left: its record, its report, its ads and events. Names are checked, never paths."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from dags_app import attempts
from dags_app.attempts import AttemptFile, AttemptLogs, StoredLogs
from dags_app.models import DAG
from dags_app.packs import is_there
from wms2.api.answers import Url, answer
from wms2.api.views import ApiView

_WHERE = "on the submit host"
NodeAttemptsSerializer = answer(
    "NodeAttempts", {"dag_id": uuid.UUID, "unit": str, "node": str, "attempts": list[dict[str, Any]]},
    "What the POST script wrote of each attempt (``wms2.post/1``).",
    attempts="oldest first; docs/schemas/post.json",
)  # fmt: skip
AttemptReportSerializer = answer(
    "AttemptReport", AttemptFile, "The job report of one attempt (``wms2.report/1``).", "path", "problem", "content",
    path=_WHERE,
    problem="why there is no report",
    content=serializers.DictField(allow_null=True, help_text="docs/schemas/report.json"),
)  # fmt: skip
JobEventSerializer = answer(
    "JobEvent", {"number": int, "at": str, "title": str, "body": str}, "One event of HTCondor's job log.",
    at="the submit host's local time",
)  # fmt: skip
AdsSerializer = answer("Ads", {"job_ad": str, "machine_ad": str}, "As HTCondor wrote them.", events=JobEventSerializer(many=True))
AttemptAdsSerializer = answer(
    "AttemptAds", AttemptFile, "Ads and events of one job.", "path", "problem", "content",
    path=_WHERE,
    problem="why there are no ads; the events may be there all the same",
    content=AdsSerializer(),
)  # fmt: skip
PackedFileSerializer = answer(
    "PackedFile", {"number": int, "name": str, "size_bytes": int, "text": Url}, "A file in packed logs.",
    text="it as plain text, up to 1 MB",
)  # fmt: skip
AttemptLogsSerializer = answer(
    "AttemptLogs", {"path": str, "problem": str, "size_bytes": int, "archive": Url}, "The packed logs of one job.",
    path=_WHERE,
    problem="why there is nothing to show",
    archive="tar.gz",
    files=PackedFileSerializer(many=True),
)  # fmt: skip
StoredLogsSerializer = answer(
    "KeptLogs", StoredLogs, "Packed logs that are kept of one job.",
    "unit", "node", "attempt", "job_id", "name", "size_bytes", "at", "code", "step",
    code="exit code; 0: it did well",
    logs=serializers.URLField(),
)  # fmt: skip
DagKeptLogsSerializer = answer(
    "DagKeptLogs", {"dag_id": uuid.UUID, "problem": str, "results": list[StoredLogs]}, "All packed logs that a DAG keeps.",
    problem="why none can be listed",
)  # fmt: skip


class NodeAttemptsView(ApiView):
    """All attempts of a node."""

    serializer_class = NodeAttemptsSerializer

    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str) -> Response:
        """Oldest first, those of earlier submissions of the same directory included."""
        found = _found(attempts.node_attempts, pk, unit, node)
        return Response(self.get_serializer({"dag_id": pk, "unit": unit, "node": node, "attempts": found}).data)


class AttemptReportView(ApiView):
    """The report of an attempt."""

    serializer_class = AttemptReportSerializer

    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """As the job wrote it; ``problem`` says why there is none."""
        return Response(self.get_serializer(_found(attempts.attempt_report, pk, unit, node, attempt, job_id)).data)


class AttemptJobAdView(ApiView):
    """The ads of an attempt."""

    serializer_class = AttemptAdsSerializer

    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """The job's and the machine's ad as the job saw them, and the job's events."""
        return Response(self.get_serializer(_found(attempts.attempt_ads, pk, unit, node, attempt, job_id)).data)


class AttemptLogsView(ApiView):
    """The packed logs of an attempt."""

    serializer_class = AttemptLogsSerializer

    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """What is in them; ``problem`` says why nothing is."""
        job = (pk, unit, node, attempt, job_id)
        found: AttemptLogs = _found(attempts.attempt_logs, *job)
        files = [
            {**each._asdict(), "number": number, "text": reverse("attempt-log", (*job, number), request=request)}
            for number, each in enumerate(found.files)
        ]
        archive = reverse("attempt-archive", job, request=request)
        body = {"path": found.path, "problem": found.problem, "size_bytes": len(found.archive), "archive": archive}
        return Response(self.get_serializer({**body, "files": files}).data)


class AttemptLogView(ApiView):
    """One file of an attempt's packed logs."""

    @extend_schema(operation_id="attempt_log", responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str, number: int) -> HttpResponse:
        """As plain text."""
        files = _found(attempts.attempt_logs, pk, unit, node, attempt, job_id).files
        if number >= len(files):
            raise Http404("there is no such file in the archive")
        return HttpResponse(files[number].text, content_type="text/plain; charset=utf-8")


class AttemptArchiveView(ApiView):
    """An attempt's packed logs as they are."""

    @extend_schema(responses={(200, "application/gzip"): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> HttpResponse:
        """The whole archive (tar.gz)."""
        found: AttemptLogs = _found(attempts.attempt_logs, pk, unit, node, attempt, job_id)
        if not found.archive:
            raise Http404(found.problem)
        named = f'attachment; filename="{unit}.{found.path.rpartition("/")[2]}"'
        return HttpResponse(found.archive, content_type="application/gzip", headers={"Content-Disposition": named})


class DagStoredLogsView(ApiView):
    """All packed logs that a DAG keeps."""

    serializer_class = DagKeptLogsSerializer

    def get(self, request: Request, pk: uuid.UUID) -> Response:
        """The newest first; of all submissions of the same directory."""
        dag = get_object_or_404(DAG, pk=pk)
        rows = [
            {**each._asdict(), "name": each.name, "logs": reverse("attempt-logs", (pk, *each.job), request=request)}
            for each in attempts.stored_logs(dag)
        ]
        problem = "" if is_there(dag.submit_dir) else f"{dag.submit_dir} cannot be read from this host, or is gone"
        return Response(self.get_serializer({"dag_id": pk, "problem": problem, "results": rows}).data)


def _found(read: Callable[..., Any], pk: uuid.UUID, *names: object) -> Any:
    try:
        return read(get_object_or_404(DAG, pk=pk), *names)
    except ValueError as error:
        raise Http404(str(error)) from error
