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
from dags_app.attempts import AttemptLogs
from dags_app.models import DAG
from dags_app.packs import is_there
from wms2.api.views import ExtraView


class NodeAttemptsSerializer(serializers.Serializer):
    """What the POST script wrote of each attempt (``wms2.post/1``)."""

    dag_id = serializers.UUIDField()
    unit = serializers.CharField()
    node = serializers.CharField()
    attempts = serializers.ListField(child=serializers.DictField(), help_text="oldest first; docs/schemas/post.json")


class AttemptReportSerializer(serializers.Serializer):
    """The job report of one attempt (``wms2.report/1``)."""

    path = serializers.CharField(help_text="on the submit host")
    problem = serializers.CharField(allow_blank=True, help_text="why there is no report")
    content = serializers.DictField(allow_null=True, help_text="docs/schemas/report.json")


class JobEventSerializer(serializers.Serializer):
    """One event of HTCondor's job log."""

    number = serializers.IntegerField()
    at = serializers.CharField(help_text="the submit host's local time")
    title = serializers.CharField()
    body = serializers.CharField(allow_blank=True)


class AdsSerializer(serializers.Serializer):
    """As HTCondor wrote them."""

    job_ad = serializers.CharField(allow_blank=True)
    machine_ad = serializers.CharField(allow_blank=True)
    events = JobEventSerializer(many=True)


class AttemptAdsSerializer(serializers.Serializer):
    """Ads and events of one job."""

    path = serializers.CharField(help_text="on the submit host")
    problem = serializers.CharField(allow_blank=True, help_text="why there are no ads; the events may be there all the same")
    content = AdsSerializer()


class PackedFileSerializer(serializers.Serializer):
    """A file in packed logs."""

    number = serializers.IntegerField()
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    text = serializers.URLField(help_text="it as plain text, up to 1 MB")


class AttemptLogsSerializer(serializers.Serializer):
    """The packed logs of one job."""

    path = serializers.CharField(help_text="on the submit host")
    problem = serializers.CharField(allow_blank=True, help_text="why there is nothing to show")
    size_bytes = serializers.IntegerField()
    archive = serializers.URLField(help_text="tar.gz")
    files = PackedFileSerializer(many=True)


class KeptLogsSerializer(serializers.Serializer):
    """Packed logs that are kept of one job."""

    unit = serializers.CharField()
    node = serializers.CharField()
    attempt = serializers.IntegerField()
    job_id = serializers.CharField()
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    at = serializers.CharField()
    code = serializers.IntegerField(help_text="exit code; 0: it did well")
    step = serializers.CharField(allow_blank=True)
    logs = serializers.URLField()


class DagKeptLogsSerializer(serializers.Serializer):
    """All packed logs that a DAG keeps."""

    dag_id = serializers.UUIDField()
    problem = serializers.CharField(allow_blank=True, help_text="why none can be listed")
    results = KeptLogsSerializer(many=True)


class NodeAttemptsView(ExtraView):
    """All attempts of a node."""

    serializer_class = NodeAttemptsSerializer

    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str) -> Response:
        """Oldest first, those of earlier submissions of the same directory included."""
        found = _found(attempts.node_attempts, pk, unit, node)
        return Response(self.get_serializer({"dag_id": pk, "unit": unit, "node": node, "attempts": found}).data)


class AttemptReportView(ExtraView):
    """The report of an attempt."""

    serializer_class = AttemptReportSerializer

    @extend_schema(responses={200: AttemptReportSerializer})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """As the job wrote it; ``problem`` says why there is none."""
        return Response(self.get_serializer(_found(attempts.attempt_report, pk, unit, node, attempt, job_id)).data)


class AttemptJobAdView(ExtraView):
    """The ads of an attempt."""

    serializer_class = AttemptAdsSerializer

    @extend_schema(responses={200: AttemptAdsSerializer})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """The job's and the machine's ad as the job saw them, and the job's events."""
        return Response(self.get_serializer(_found(attempts.attempt_ads, pk, unit, node, attempt, job_id)).data)


class AttemptLogsView(ExtraView):
    """The packed logs of an attempt."""

    serializer_class = AttemptLogsSerializer

    @extend_schema(responses={200: AttemptLogsSerializer})
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


class AttemptLogView(ExtraView):
    """One file of an attempt's packed logs."""

    @extend_schema(operation_id="attempt_log", responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str, number: int) -> HttpResponse:
        """As plain text."""
        files = _found(attempts.attempt_logs, pk, unit, node, attempt, job_id).files
        if number >= len(files):
            raise Http404("there is no such file in the archive")
        return HttpResponse(files[number].text, content_type="text/plain; charset=utf-8")


class AttemptArchiveView(ExtraView):
    """An attempt's packed logs as they are."""

    @extend_schema(responses={(200, "application/gzip"): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> HttpResponse:
        """The whole archive (tar.gz)."""
        found: AttemptLogs = _found(attempts.attempt_logs, pk, unit, node, attempt, job_id)
        if not found.archive:
            raise Http404(found.problem)
        named = f'attachment; filename="{unit}.{found.path.rpartition("/")[2]}"'
        return HttpResponse(found.archive, content_type="application/gzip", headers={"Content-Disposition": named})


class DagKeptLogsView(ExtraView):
    """All packed logs that a DAG keeps."""

    serializer_class = DagKeptLogsSerializer

    def get(self, request: Request, pk: uuid.UUID) -> Response:
        """The newest first; of all submissions of the same directory."""
        dag = get_object_or_404(DAG, pk=pk)
        rows = [
            {**each._asdict(), "name": each.name, "logs": reverse("attempt-logs", (pk, *each.job), request=request)}
            for each in attempts.logs_kept(dag)
        ]
        problem = "" if is_there(dag.submit_dir) else f"{dag.submit_dir} cannot be read from this host, or is gone"
        return Response(self.get_serializer({"dag_id": pk, "problem": problem, "results": rows}).data)


def _found(read: Callable[..., Any], pk: uuid.UUID, *names: object) -> Any:
    try:
        return read(get_object_or_404(DAG, pk=pk), *names)
    except ValueError as error:
        raise Http404(str(error)) from error
