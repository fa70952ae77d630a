"""Errors as JSON (error-handling 4.1, "Inspect"): what failed, how often, where, and the end of the logs."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from dags_app.errors import Count, RequestErrors
from dags_app.models import FailedInputFile, FailureGroup, FailureSample
from wms2.api.answers import Url, answer, rows

FailureCountSerializer = answer(
    "FailureCount", Count, "One value and how often it failed.",
    value="blank: not known",
    attempts="failed attempts",
    given_up="of them those after which the node was not tried again",
)  # fmt: skip
AttemptLinksSerializer = answer(
    "AttemptLinks", {"attempts": Url, "report": Url, "logs": Url, "job_ad": Url}, "Addresses of everything kept of an attempt.",
    attempts="all attempts of the node",
    logs="what is in its packed logs, or why there are none",
    job_ad="ads of job and machine, and HTCondor's events",
)  # fmt: skip


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


FailureGroupSerializer = rows(
    "FailureGroup", FailureGroup, "Failures that are alike.",
    "category", "code", "site", "step", "rule", "attempts", "given_up", "actions", "reason", "first_at", "last_at",
    samples=FailureSampleSerializer(many=True, help_text="the newest, at most three"),
)  # fmt: skip
BadFileSerializer = rows(
    "BadFile", FailedInputFile, "An input file that failures named.", "lfn", "attempts", "site", "code", "last_at"
)
RequestErrorsSerializer = answer(
    "RequestErrors", RequestErrors, "The errors of a request.",
    attempts="failed attempts of all nodes, in all rounds",
    given_up="of them those after which the node was not tried again",
    groups=FailureGroupSerializer(many=True),
    groups_left_out="groups that are counted above and not listed",
    bad_files=BadFileSerializer(many=True),
    problems="failure logs that could not be read; the counts are then too low",
)  # fmt: skip
