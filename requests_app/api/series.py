"""Numbers over time, as charts show them: JSON, or CSV with ``format=csv``."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import ClassVar

from django.core.exceptions import ValidationError
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.models import Request
from requests_app.selectors.progress_charts import CHARTS, progress_charts
from requests_app.selectors.samples import MEASURES, YEAR, UnknownSeries, chart
from wms2.api.answers import answer
from wms2.api.csv_lists import csv_table
from wms2.api.filters import MomentField
from wms2.api.problems import bad_field
from wms2.api.views import ApiView
from wms2.runtime import clock
from wms2.web.charts import Chart, Mark
from wms2.web.time_range import DEFAULT, RANGES, TimeRange

_MOMENT, _LENGTHS = MomentField(), {**RANGES, YEAR: timedelta(days=365)}
_FORMAT = OpenApiParameter("format", str, enum=["json", "csv"], description="csv: a line for each moment")
_LineSerializer = answer(
    "SeriesLine", {"label": str}, "One category.",
    values=serializers.ListField(child=serializers.FloatField(allow_null=True), help_text="null: not known"),
)  # fmt: skip
_MarkSerializer = answer("SeriesMark", Mark, "Something that happened.", "at", "label")
SeriesSerializer = answer(
    "Series", Chart, "Lines over common moments, the largest first.", "title", "unit",
    times=serializers.ListField(child=serializers.DateTimeField(), help_text="begins of what the values are of; rising"),
    lines=_LineSerializer(many=True),
    marks=_MarkSerializer(many=True),
)  # fmt: skip
_ANSWERS = {(200, "application/json"): SeriesSerializer, (200, "text/csv"): OpenApiTypes.STR}


class SeriesView(ApiView):
    """What happened and how things stood over time, in all requests together."""

    serializer_class = SeriesSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"measure", "range", "until", "by", "site", "campaign", "step", "format"})

    @extend_schema(
        parameters=[
            OpenApiParameter("measure", str, enum=list(MEASURES), required=True),
            OpenApiParameter("range", str, enum=list(_LENGTHS), default=DEFAULT, description="how long; 365d: by day"),
            OpenApiParameter("until", OpenApiTypes.DATETIME, description="its end; default: now"),
            OpenApiParameter("by", str, enum=sorted({by for each in MEASURES.values() for by in each.by})),
            *(OpenApiParameter(name, str, description="of this one alone") for name in ("site", "campaign", "step")),
            _FORMAT,
        ],
        responses=_ANSWERS,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """Buckets that have ended: rates an hour of what happened, means of how things stood."""
        given = request.query_params
        site, campaign, step = (given.get(name, "") for name in ("site", "campaign", "step"))
        _one_of(given.get("measure", ""), MEASURES, "measure")
        try:
            found = chart(given["measure"], _range(request), by=given.get("by", ""), site=site, campaign=campaign, step=step)
            return _shown(request, found)
        except UnknownSeries as error:
            raise bad_field(error.field, str(error)) from error


class RequestSeriesView(ApiView):
    """The course of one request."""

    serializer_class = SeriesSerializer
    query_params: ClassVar[frozenset[str]] = frozenset({"measure", "format"})

    @extend_schema(parameters=[OpenApiParameter("measure", str, enum=list(CHARTS), required=True), _FORMAT], responses=_ANSWERS)
    def get(self, request: HttpRequest, request_name: str) -> HttpResponse:
        """From its first sample to its last, with begins of rounds and stops."""
        row = get_object_or_404(Request, request_name=request_name)
        place = list(CHARTS).index(_one_of(request.query_params.get("measure", ""), CHARTS, "measure"))
        return _shown(request, progress_charts(row)[place])


def _range(request: HttpRequest) -> TimeRange:
    given = request.query_params
    name = _one_of(given.get("range", DEFAULT), _LENGTHS, "range")
    try:
        ends = _MOMENT.clean(given["until"]) if "until" in given else clock.now()
        return TimeRange(name, ends - _LENGTHS[name], ends)
    except (ValidationError, OverflowError) as error:
        raise bad_field("until", "; ".join(getattr(error, "messages", [str(error)]))) from error


def _one_of(value: str, known: Collection[str], field: str) -> str:
    if value not in known:
        raise bad_field(field, f"is not one of {', '.join(known)}")
    return value


def _shown(request: HttpRequest, found: Chart) -> HttpResponse:
    if _one_of(request.query_params.get("format", "json"), ("json", "csv"), "format") == "json":
        return Response(SeriesSerializer(found).data)
    moments = (at.isoformat().replace("+00:00", "Z") for at in found.times)
    values = zip(moments, *(line.values for line in found.lines), strict=True)
    return csv_table(found.name, ["at", *(line.label for line in found.lines)], values)
