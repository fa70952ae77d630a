"""Errors as JSON (error-handling 4.1, "Inspect"): what failed, how often, where, and the end of the logs."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from dags_app.models import FailedInputFile, FailureGroup, FailureSample


class FailureCountSerializer(serializers.Serializer):
    """One value and how often it failed."""

    value = serializers.CharField(allow_blank=True, help_text="blank: not known")
    attempts = serializers.IntegerField(help_text="failed attempts")
    given_up = serializers.IntegerField(help_text="of them those after which the node was not tried again")


class AttemptLinksSerializer(serializers.Serializer):
    """Addresses of everything kept of an attempt."""

    attempts = serializers.URLField(help_text="all attempts of the node")
    report = serializers.URLField()
    logs = serializers.URLField(help_text="what is in its packed logs, or why there are none")
    job_ad = serializers.URLField(help_text="ads of job and machine, and HTCondor's events")


class FailureSampleSerializer(serializers.ModelSerializer):
    """One of the newest failed attempts of a group."""

    dag_id = serializers.UUIDField()
    links = serializers.SerializerMethodField()

    class Meta:
        model = FailureSample
        fields: tuple[str, ...] = (
            "dag_id", "unit", "node", "attempt", "job_id", "final", "at", "message", "bad_files", "log_tail", "links",
        )  # fmt: skip

    @extend_schema_field(AttemptLinksSerializer)
    def get_links(self, sample: FailureSample) -> dict[str, str]:
        """One click away."""
        http = self.context.get("request")
        node = [sample.dag_id, sample.unit, sample.node]
        job = [*node, sample.attempt, sample.job_id]
        return {
            "attempts": reverse("node-attempts", node, request=http),
            "report": reverse("attempt-report", job, request=http),
            "logs": reverse("attempt-logs", job, request=http),
            "job_ad": reverse("attempt-job-ad", job, request=http),
        }


class FailureGroupSerializer(serializers.ModelSerializer):
    """Failures that are alike."""

    samples = FailureSampleSerializer(many=True, help_text="the newest, at most three")

    class Meta:
        model = FailureGroup
        fields: tuple[str, ...] = (
            "category", "code", "site", "step", "rule", "attempts", "given_up", "actions", "reason", "first_at", "last_at",
            "samples",
        )  # fmt: skip


class BadFileSerializer(serializers.ModelSerializer):
    """An input file that failures named."""

    class Meta:
        model = FailedInputFile
        fields: tuple[str, ...] = ("lfn", "attempts", "site", "code", "last_at")


class RequestErrorsSerializer(serializers.Serializer):
    """The errors of a request."""

    request_name = serializers.CharField()
    attempts = serializers.IntegerField(help_text="failed attempts of all nodes, in all rounds")
    given_up = serializers.IntegerField(help_text="of them those after which the node was not tried again")
    by_category = FailureCountSerializer(many=True)
    by_code = FailureCountSerializer(many=True)
    by_site = FailureCountSerializer(many=True)
    by_step = FailureCountSerializer(many=True)
    groups = FailureGroupSerializer(many=True)
    groups_left_out = serializers.IntegerField(help_text="groups that are counted above and not listed")
    bad_files = BadFileSerializer(many=True)
    files_left_out = serializers.IntegerField()
    problems = serializers.ListField(
        child=serializers.CharField(), help_text="failure logs that could not be read; the counts are then too low"
    )
