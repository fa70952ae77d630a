"""How far a request was, over time: a day of samples, a month of means, a summary."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.models import Progress, ProgressSample, Request
from requests_app.selectors.progress import course_of
from wms2.api.views import ApiView

_COUNTERS = ("at", "units", "units_done", "units_failed", "jobs_idle", "jobs_running", "jobs_held")


class ProgressSerializer(serializers.ModelSerializer):
    """Of the whole request, up to the last change."""

    class Meta:
        model = Progress
        fields: tuple[str, ...] = (*_COUNTERS, "first_at", "peak_running", "job_seconds")


class ProgressSampleSerializer(serializers.ModelSerializer):
    """Of a minute in which something had changed, or (`mean`) of ten minutes."""

    class Meta:
        model = ProgressSample
        fields: tuple[str, ...] = (*_COUNTERS, "mean")


class CourseSerializer(serializers.Serializer):
    """Between two samples nothing has changed."""

    summary = ProgressSerializer(allow_null=True)
    samples = ProgressSampleSerializer(many=True)


class RequestProgressView(ApiView):
    """How far a request was, over time."""

    serializer_class = CourseSerializer

    def get(self, request: HttpRequest, request_name: str) -> Response:
        """Oldest first: ten-minute means of the last month, samples of the last day; the summary is kept for ever."""
        row = get_object_or_404(Request, request_name=request_name)
        return Response(self.get_serializer(course_of(row)).data)
