"""What there is of one request beside itself: errors, versions, input files, leftovers, course, what could be taken back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.api.errors import RequestErrorsSerializer
from dags_app.errors import request_errors
from dags_app.models import Leftover
from dags_app.planning.lumis import to_json
from outputs_app.effects.invalidation import Progress as InvalidationStep
from outputs_app.effects.invalidation import invalidation_progress
from requests_app.models import InputFile, Progress, ProgressSample, Request
from requests_app.selectors.missing_lumis import (
    MissingLumis,
    MissingReason,
    Reason,
    datasets_of,
    missing_lumis,
)
from requests_app.selectors.parts import (
    SiteLeftovers,
    TroubledInput,
    leftovers_by_site,
    leftovers_of,
    progress_chart_of,
    troubled_input,
)
from requests_app.selectors.versions import Version, VersionChain, version_chain
from requests_app.services.invalidation import manifest_of
from wms2.api.answers import Computed, answer, rows
from wms2.api.problems import bad_field
from wms2.api.views import ApiView

MOST_LEFTOVERS = 1000


def part_view(queryset: Callable[[], Any], serializer: Any, ask: Callable[[Any], Any], does: str, *, many: bool = False) -> Any:
    """A view that shows what ``ask`` returns for the row in the address; ``does``: in words for the OpenAPI schema."""

    def get(self: Any, request: HttpRequest, **key: Any) -> Response:
        return Response(self.get_serializer(ask(get_object_or_404(queryset(), **key)), many=many).data)

    described = extend_schema(description=does, responses=serializer(many=True) if many else serializer)
    view: Any = type("PartView", (ApiView,), {"serializer_class": serializer, "get": described(get), "__doc__": does})
    return view.as_view()


WaitingFileSerializer = rows(
    "WaitingFile", InputFile, "A file that no job can be planned for now.",
    "lfn", "block_name", "events", "rses", "located_at", "waiting_since", "waiting_reason",
)  # fmt: skip
ExcludedFileSerializer = rows(
    "ExcludedFile", InputFile, "A file that no job reads.",
    "lfn", "block_name", "events", "excluded_kind", "excluded_reason", "excluded_by", "excluded_at",
)  # fmt: skip
RequestInputFilesSerializer = answer(
    "RequestInputFiles", TroubledInput,
    "Files that wait or were left out; each list has at most 1000, the numbers count all.",
    "waiting_files", "excluded_files", "unwanted_files",
    excluded_files="without those that the request's own masks and lists leave out",
    unwanted_files="left out by the request's own masks and lists",
    waiting=WaitingFileSerializer(many=True),
    excluded=ExcludedFileSerializer(many=True),
)  # fmt: skip
SiteLeftoversSerializer = answer(
    "SiteLeftovers", SiteLeftovers, "Numbers of one site.", "site", "waiting", "failing", "removed_files",
    waiting="work units whose leftovers are still there",
    failing="those among them that could not be removed when that was tried last",
)  # fmt: skip
LeftoverSerializer = rows(
    "Leftover", Leftover, "One work unit at one site.",
    "round=unit.round.index", "unit=unit.name", "site", "removed", "removed_files", "problem", "tries", "next_try_at", "job",
    "settled_at",
    job=serializers.UUIDField(source="job_id", help_text="the site job that has it, or has removed the last of it"),
)  # fmt: skip
RequestLeftoversSerializer = answer(
    "RequestLeftovers", {"sites": list[SiteLeftovers]},
    "Sites with all numbers, and at most 1000 work units: those that cannot be cleaned first.",
    units=LeftoverSerializer(many=True),
)  # fmt: skip
_COUNTERS = ("at", "units", "units_done", "units_failed", "jobs_idle", "jobs_running", "jobs_held")
ProgressSerializer = rows(
    "Progress", Progress, "Of the whole request, up to the last change.",
    *_COUNTERS, "first_at", "peak_running", "job_seconds",
)  # fmt: skip
ProgressSampleSerializer = rows(
    "ProgressSample", ProgressSample, "Of a minute in which something had changed, or (`mean`) of ten minutes.",
    *_COUNTERS, "mean",
)  # fmt: skip
ProgressSerializer = answer(
    "Course", {}, "Between two samples nothing has changed.",
    summary=ProgressSerializer(allow_null=True),
    samples=ProgressSampleSerializer(many=True),
)  # fmt: skip
_RuleSerializer = answer(
    "_Rule", {"id": str, "kind": str, "did": str, "rse": str}, "",
    kind="source or tape",
    did="file or block that it protects",
)  # fmt: skip
_BlockSerializer = answer(
    "_Block", {"name": str, "status": str, "open_in_dbs": bool, "files": int, "bytes": int}, "",
    rules=_RuleSerializer(many=True),
)  # fmt: skip
_DatasetSerializer = answer("_Dataset", {"name": str, "state": str}, "", blocks=_BlockSerializer(many=True))
_TotalsSerializer = answer("_Totals", {"datasets": int, "blocks": int, "rules": int}, "")
InvalidationManifestSerializer = answer(
    "InvalidationManifest", {"schema": str, "request_name": str, "written_at": datetime},
    "Everything that is registered or protected outside.",
    datasets=_DatasetSerializer(many=True),
    totals=_TotalsSerializer(),
)  # fmt: skip
InvalidationProgressSerializer = answer(
    "InvalidationProgress", InvalidationStep,
    "One step: rules of a dataset, files of a dataset in DBS, or single files of a block.",
    what="dataset or block",
    of="rules or files; 0 before it has begun",
)  # fmt: skip
_VERSION = ("request_name", "processing_version", "status")
_PROCESSING_VERSION = serializers.JSONField(allow_null=True, help_text="a number, or step -> number")
CurrentVersionSerializer = answer(
    "CurrentVersion", Version, "The newest version.", *_VERSION, "cleanup_policy",
    processing_version=_PROCESSING_VERSION,
    cleanup_policy=serializers.CharField(),
)  # fmt: skip
VersionSerializer = answer(
    "Version", Version, "A former version.", *_VERSION, "superseded_by", "failure_reason", processing_version=_PROCESSING_VERSION
)
VersionChainSerializer = answer(
    "VersionChain", VersionChain, "Spec 7.2, version history; oldest first.", current=CurrentVersionSerializer(),
)  # fmt: skip

_MissingReasonSerializer = answer(
    "_MissingReason", Reason, "What is missing for one reason.", "reason", "label", "number", "said",
    number="lumis, or events of a generation",
    said="more about it, e.g. why lumis were refused",
    lumis=Computed(lambda reason: to_json(reason.lumis), serializers.DictField(), help_text="run -> [[first, last], ...]"),
)  # fmt: skip
MissingLumisSerializer = answer(
    "MissingLumis", MissingLumis, "What an output dataset lacks of what its request wants; each lumi has one reason.",
    "request_name", "dataset", "unit", "wanted", "missing",
    unit="of the numbers: lumis, or events of a generation",
    reasons=_MissingReasonSerializer(many=True),
    lumis=Computed(lambda missing: missing.lumis(), serializers.DictField(), help_text="all of them as a lumi JSON"),
)  # fmt: skip

request_errors_view = part_view(
    Request.objects.all, RequestErrorsSerializer, lambda row: request_errors(row.request_name),
    "Counts by category, code, site and step; groups with the newest log tails; bad input files.",
)  # fmt: skip
request_input_files_view = part_view(
    Request.objects.all, RequestInputFilesSerializer, troubled_input, "With the reason of each, since when, and who left it out.",
)  # fmt: skip
request_leftovers_view = part_view(
    Request.objects.all, RequestLeftoversSerializer,
    lambda row: {"sites": leftovers_by_site(row), "units": leftovers_of(row)[:MOST_LEFTOVERS]},
    "Of all rounds that the cleaner has looked at; units that had left nothing are not among them.",
)  # fmt: skip
request_progress_view = part_view(
    Request.objects.all, ProgressSerializer, progress_chart_of,
    "Oldest first: ten-minute means of the last month, samples of the last day; the summary is kept for ever.",
)  # fmt: skip
request_versions_view = part_view(Request.objects.all, VersionChainSerializer, version_chain, "Whichever version is asked for.")
invalidation_progress_view = part_view(
    Request.objects.all, InvalidationProgressSerializer, lambda row: invalidation_progress(row.pk),
    "Every step that was asked for; it costs the same for any number of files.", many=True,
)  # fmt: skip


_DATASET = OpenApiParameter("dataset", str, required=True, description="name of one of its output datasets")
_REASON = OpenApiParameter("reason", str, enum=MissingReason.values, description="only lumis with this reason")


class RequestMissingLumisView(ApiView):
    """What an output dataset lacks: numbers with reasons, and lumis."""

    serializer_class = MissingLumisSerializer
    query_params = frozenset({"dataset"})

    @extend_schema(parameters=[_DATASET], responses=MissingLumisSerializer)
    def get(self, request: HttpRequest, request_name: str) -> Response:
        """Of a generation, events; its lumis are those of work units that are not done."""
        return Response(self.get_serializer(missing_of(request, request_name)).data)


class RequestMissingLumisJsonView(ApiView):
    """The same as a lumi JSON alone."""

    query_params = frozenset({"dataset", "reason"})

    @extend_schema(parameters=[_DATASET, _REASON], responses={200: OpenApiTypes.OBJECT})
    def get(self, request: HttpRequest, request_name: str) -> Response:
        """``{"run": [[first, last], ...]}``, for all reasons or for one."""
        reason = request.query_params.get("reason", "")
        if reason and reason not in MissingReason.values:
            raise bad_field("reason", f"is not one of {', '.join(MissingReason)}")
        found = missing_of(request, request_name)
        named = f'attachment; filename="{request_name}{found.dataset.replace("/", "-")}.lumis.json"'
        return Response(found.lumis(reason), headers={"Content-Disposition": named})


def missing_of(request: HttpRequest, request_name: str) -> MissingLumis:
    """Of the dataset that the address names. Raises Http404: there is no such request, or it has no such dataset."""
    row = get_object_or_404(Request, request_name=request_name)
    name = request.query_params.get("dataset", "")
    if not name:
        raise bad_field("dataset", "name one of its output datasets")
    return missing_lumis(row, get_object_or_404(datasets_of(row), name=name))


class RequestInvalidationView(ApiView):
    """What would have to be invalidated to take a request's outputs back: datasets, blocks, rules."""

    serializer_class = InvalidationManifestSerializer

    def get(self, request: HttpRequest, request_name: str) -> Response:
        """As the rows have it now; for a failed request it is also written to a file."""
        return Response(manifest_of(get_object_or_404(Request, request_name=request_name)))
