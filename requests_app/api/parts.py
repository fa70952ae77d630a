"""What there is of one request beside itself: errors, versions, input files, leftovers, course, what could be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.api.errors import RequestErrorsSerializer
from dags_app.errors import request_errors
from dags_app.models import Leftover
from outputs_app.invalidation import invalidation_progress
from requests_app.models import InputFile, Progress, ProgressSample
from requests_app.selectors.parts import course_of, leftovers_by_site, leftovers_of, troubled_input
from requests_app.selectors.requests import requests_stored
from requests_app.selectors.versions import version_chain
from requests_app.services.invalidation import manifest_of
from wms2.api.views import ApiView, ExtraView

MOST_LEFTOVERS = 1000


def part_view(
    rows: Callable[[], Any],
    serializer: Any,
    ask: Callable[[Any], Any],
    does: str,
    *,
    many: bool = False,
    base: type[ApiView] = ApiView,
) -> Any:
    """A view that shows what ``ask`` tells of the row in the address; ``does``: in words for the OpenAPI schema."""

    def get(self: Any, request: HttpRequest, **key: Any) -> Response:
        return Response(self.get_serializer(ask(get_object_or_404(rows(), **key)), many=many).data)

    described = extend_schema(description=does, responses=serializer(many=True) if many else serializer)
    view: Any = type("PartView", (base,), {"serializer_class": serializer, "get": described(get), "__doc__": does})
    return view.as_view()


class WaitingFileSerializer(serializers.ModelSerializer):
    """A file that no job can be planned for now."""

    class Meta:
        model = InputFile
        fields: tuple[str, ...] = ("lfn", "block_name", "events", "rses", "located_at", "waiting_since", "waiting_reason")


class ExcludedFileSerializer(serializers.ModelSerializer):
    """A file that no job reads."""

    class Meta:
        model = InputFile
        fields: tuple[str, ...] = (
            "lfn", "block_name", "events", "excluded_kind", "excluded_reason", "excluded_by", "excluded_at",
        )  # fmt: skip


class RequestInputFilesSerializer(serializers.Serializer):
    """Files that wait or were left out; each list has at most 1000, the numbers count all."""

    waiting_files = serializers.IntegerField()
    excluded_files = serializers.IntegerField(help_text="without those that the request's own masks and lists leave out")
    unwanted_files = serializers.IntegerField(help_text="left out by the request's own masks and lists")
    waiting = WaitingFileSerializer(many=True)
    excluded = ExcludedFileSerializer(many=True)


class SiteLeftoversSerializer(serializers.Serializer):
    """Numbers of one site."""

    site = serializers.CharField()
    waiting = serializers.IntegerField(help_text="work units whose leftovers are still there")
    failing = serializers.IntegerField(help_text="those among them that could not be removed when that was tried last")
    removed_files = serializers.IntegerField()


class LeftoverSerializer(serializers.ModelSerializer):
    """One work unit at one site."""

    round = serializers.IntegerField(source="unit.round.index")
    unit = serializers.CharField(source="unit.name")
    job = serializers.UUIDField(source="job_id", help_text="the site job that has it, or has removed the last of it")

    class Meta:
        model = Leftover
        fields: tuple[str, ...] = (
            "round", "unit", "site", "removed", "removed_files", "problem", "tries", "next_try_at", "job", "settled_at",
        )  # fmt: skip


class RequestLeftoversSerializer(serializers.Serializer):
    """Sites with all numbers, and at most 1000 work units: those that cannot be cleaned first."""

    sites = SiteLeftoversSerializer(many=True)
    units = LeftoverSerializer(many=True)


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


class _RuleSerializer(serializers.Serializer):
    id = serializers.CharField()
    kind = serializers.CharField(help_text="source or tape")
    did = serializers.CharField(help_text="file or block that it protects")
    rse = serializers.CharField()


class _BlockSerializer(serializers.Serializer):
    name = serializers.CharField()
    status = serializers.CharField()
    open_in_dbs = serializers.BooleanField()
    files = serializers.IntegerField()
    bytes = serializers.IntegerField()
    rules = _RuleSerializer(many=True)


class _DatasetSerializer(serializers.Serializer):
    name = serializers.CharField()
    state = serializers.CharField()
    blocks = _BlockSerializer(many=True)


class _TotalsSerializer(serializers.Serializer):
    datasets = serializers.IntegerField()
    blocks = serializers.IntegerField()
    rules = serializers.IntegerField()


class InvalidationManifestSerializer(serializers.Serializer):
    """Everything that is registered or protected outside."""

    schema = serializers.CharField()
    request_name = serializers.CharField()
    written_at = serializers.DateTimeField()
    datasets = _DatasetSerializer(many=True)
    totals = _TotalsSerializer()


class InvalidationProgressSerializer(serializers.Serializer):
    """One step: rules of a dataset, files of a dataset in DBS, or single files of a block."""

    step = serializers.CharField()
    what = serializers.CharField(help_text="dataset or block")
    state = serializers.CharField()
    done = serializers.IntegerField()
    of = serializers.IntegerField(help_text="rules or files; 0 before it has begun")
    last_error = serializers.CharField()


class AnyVersionSerializer(serializers.Serializer):
    """What is told of each version."""

    request_name = serializers.CharField()
    processing_version = serializers.JSONField(allow_null=True, help_text="a number, or step -> number")
    status = serializers.CharField()


class VersionSerializer(AnyVersionSerializer):
    """A former version."""

    superseded_by = serializers.CharField(allow_blank=True)
    failure_reason = serializers.CharField(allow_blank=True)


class CurrentVersionSerializer(AnyVersionSerializer):
    """The newest version."""

    cleanup_policy = serializers.CharField()


class VersionChainSerializer(serializers.Serializer):
    """Spec 7.2, version history; oldest first."""

    current = CurrentVersionSerializer()
    versions = VersionSerializer(many=True)


request_errors_view = part_view(
    requests_stored, RequestErrorsSerializer, lambda row: request_errors(row.request_name),
    "Counts by category, code, site and step; groups with the newest log tails; bad input files.", base=ExtraView,
)  # fmt: skip
request_input_files_view = part_view(
    requests_stored, RequestInputFilesSerializer, troubled_input, "With the reason of each, since when, and who left it out.",
    base=ExtraView,
)  # fmt: skip
request_leftovers_view = part_view(
    requests_stored, RequestLeftoversSerializer,
    lambda row: {"sites": leftovers_by_site(row), "units": leftovers_of(row)[:MOST_LEFTOVERS]},
    "Of all rounds that the cleaner has looked at; units that had left nothing are not among them.", base=ExtraView,
)  # fmt: skip
request_progress_view = part_view(
    requests_stored, CourseSerializer, course_of,
    "Oldest first: ten-minute means of the last month, samples of the last day; the summary is kept for ever.",
)  # fmt: skip
request_versions_view = part_view(requests_stored, VersionChainSerializer, version_chain, "Whichever version is asked for.")
invalidation_progress_view = part_view(
    requests_stored, InvalidationProgressSerializer, lambda row: invalidation_progress(row.pk),
    "Every step that was asked for; it costs the same for any number of files.", many=True,
)  # fmt: skip


class RequestInvalidationView(ApiView):
    """What would have to be invalidated to take a request's outputs back: datasets, blocks, rules."""

    serializer_class = InvalidationManifestSerializer

    def get(self, request: HttpRequest, request_name: str) -> Response:
        """As the rows have it now; for a failed request it is also written to a file."""
        return Response(manifest_of(get_object_or_404(requests_stored(), request_name=request_name)))
