"""What fails across requests, over REST: by code and site."""

from __future__ import annotations

from datetime import datetime

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.models import FailureCategory
from requests_app.selectors.failures import Asked, Place, places
from wms2.api.answers import answer
from wms2.api.csv_lists import csv_table
from wms2.api.serializers import TextField, WordField
from wms2.api.views import ApiView
from wms2.web.time_range import DEFAULT, RANGES, TimeRange


class FailureQuerySerializer(serializers.Serializer):
    """What is asked for; the page of failures is asked in the same words."""

    range = WordField(choices=[(name, name) for name in RANGES], default=DEFAULT)
    category = WordField(choices=FailureCategory.choices, required=False)
    campaign = TextField(max_length=100, required=False)
    code = serializers.IntegerField(min_value=-(2**31), max_value=2**31 - 1, default=None, allow_null=True)
    site = TextField(max_length=100, required=False, help_text="`none`: jobs whose site is not known")
    format = WordField(choices=(("json", "JSON"), ("csv", "CSV")), default="json", help_text="csv: a line for each place")


PlaceSerializer = answer(
    "FailurePlace", Place, "Failed attempts of one code, category and rule at one site.",
    attempts="all of the kinds that occurred in the range, each since its request began",
    given_up="of them those after which the job was not tried again",
)  # fmt: skip
FailuresSerializer = answer(
    "Failures", {"range": str, "begins": datetime, "ends": datetime}, "Kinds of failures that occurred in a time range.",
    places=PlaceSerializer(many=True),
)  # fmt: skip


class FailuresView(ApiView):
    """What fails across requests."""

    serializer_class = FailuresSerializer
    query_params = frozenset(FailureQuerySerializer().fields)

    @extend_schema(
        parameters=[FailureQuerySerializer],
        responses={(200, "application/json"): FailuresSerializer, (200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """By code and site, of all requests or a campaign's."""
        query = FailureQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked, range_ = query.validated_data, TimeRange.of(query.validated_data)
        of = {name: asked.get(name, "") for name in ("category", "campaign", "site")}
        found = sorted(places(Asked(range_.begins, code=asked["code"], **of).kinds))
        if asked["format"] == "csv":
            return csv_table("failures", Place._fields, found)
        shown = {"range": range_.name, "begins": range_.begins, "ends": range_.ends}
        return Response(self.get_serializer({**shown, "places": found}).data)
