"""One attempt of a node, from the files it left: its record, its report, its ads and events. Names are checked, never paths."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from dags_app import attempts
from dags_app.attempts import AttemptFile
from dags_app.models import DAG
from wms2.api.views import ApiView


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


class NodeAttemptsView(ApiView):
    """All attempts of a node."""

    serializer_class = NodeAttemptsSerializer

    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str) -> Response:
        """Oldest first, those of earlier submissions of the same directory included."""
        dag = get_object_or_404(DAG, pk=pk)
        found = _checked(attempts.node_attempts, dag, unit, node)
        return Response(self.get_serializer({"dag_id": dag.pk, "unit": unit, "node": node, "attempts": found}).data)


class AttemptReportView(ApiView):
    """The report of an attempt."""

    serializer_class = AttemptReportSerializer

    @extend_schema(responses={200: AttemptReportSerializer})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """As the job wrote it; ``problem`` says why there is none."""
        found: AttemptFile = _checked(attempts.attempt_report, get_object_or_404(DAG, pk=pk), unit, node, attempt, job_id)
        return Response(self.get_serializer(found).data)


class AttemptJobAdView(ApiView):
    """The ads of an attempt."""

    serializer_class = AttemptAdsSerializer

    @extend_schema(responses={200: AttemptAdsSerializer})
    def get(self, request: Request, pk: uuid.UUID, unit: str, node: str, attempt: int, job_id: str) -> Response:
        """The job's and the machine's ad as the job saw them, and the job's events."""
        found: AttemptFile = _checked(attempts.attempt_ads, get_object_or_404(DAG, pk=pk), unit, node, attempt, job_id)
        return Response(self.get_serializer(found).data)


def _checked(read: Callable[..., Any], *names: object) -> Any:
    try:
        return read(*names)
    except ValueError as error:
        raise Http404(str(error)) from error
