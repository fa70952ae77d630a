"""Files that were lost, by their LFNs, over any number of requests: what is concerned, and having it made again (ADR 0021)."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.services.lost_files import MOST_FILES, LostPlan, lost_files_make_again, lost_files_plan
from wms2.api.serializers import ReasonSerializer, StrictSerializer, TextField
from wms2.api.shown import shown
from wms2.api.verbs import actor_of
from wms2.api.views import ApiView


def _names() -> serializers.ListField:
    child = TextField(max_length=700)
    return serializers.ListField(child=child, min_length=1, max_length=MOST_FILES, help_text="LFNs of the lost files")


class LostFilesSerializer(StrictSerializer):
    """Which files were lost."""

    files = _names()


class LostFilesConfirmedSerializer(ReasonSerializer):
    """Which files were lost, and the preview that was looked at."""

    files = _names()
    confirm = TextField(max_length=100, help_text="`confirm` of the preview; refused when something else would be done by now")


class LostDatasetSerializer(serializers.Serializer):
    """How many files of a dataset go, and why."""

    name = serializers.CharField()
    tier = serializers.CharField()
    lost = serializers.IntegerField()
    made_from_lost = serializers.IntegerField(help_text="made from files that go")
    drawn_in = serializers.IntegerField(help_text="hold pieces of the same work as files that go")


class RequestLossSerializer(serializers.Serializer):
    """What a request takes back and makes again."""

    request_name = serializers.CharField(source="request.request_name")
    status = serializers.CharField(source="request.status")
    then = serializers.CharField(help_text="what becomes of the request")
    datasets = LostDatasetSerializer(many=True)
    work_units = serializers.IntegerField(source="units", help_text="of which pieces are made again")
    lumis = serializers.IntegerField(help_text="made again; generated ones under new numbers")
    events = serializers.IntegerField(help_text="of its input, or generated; 0 where work is split by lumi")
    files = serializers.DictField(
        child=serializers.CharField(allow_blank=True), help_text="LFN -> why it goes; empty: it is lost"
    )


class LostPlanSerializer(serializers.Serializer):
    """Everything that is concerned."""

    confirm = serializers.CharField(allow_blank=True, help_text="to be sent to have it done; empty: nothing would be done")
    requests = RequestLossSerializer(many=True)
    unknown = serializers.ListField(child=serializers.CharField(), help_text="no files that WMS2 has made")
    already = serializers.DictField(child=serializers.CharField(), help_text="LFN -> it is invalid, or being made again")
    refused = serializers.DictField(child=serializers.CharField(), help_text="LFN -> why it cannot be made again now")
    left = serializers.DictField(
        child=serializers.CharField(), help_text="made from files that go, and not made again: LFN -> why; each gets a case"
    )


def _answer(plan: LostPlan, code: int) -> Response:
    return Response(shown(LostPlanSerializer, plan), status=code)


class LostFilesPreviewView(ApiView):
    """What having lost files made again would mean. Nothing is changed."""

    serializer_class = LostFilesSerializer
    outside: ClassVar[frozenset[str]] = frozenset({"post"})

    @extend_schema(responses={200: LostPlanSerializer})
    def post(self, request: HttpRequest) -> Response:
        """Requests, datasets and files that go, what is made again, and what is not, with the reason."""
        data: Any = LostFilesSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        return _answer(lost_files_plan(data.validated_data["files"]), status.HTTP_200_OK)


class LostFilesView(ApiView):
    """Have lost files made again, with all that was made from them."""

    serializer_class = LostFilesConfirmedSerializer
    outside: ClassVar[frozenset[str]] = frozenset({"post"})

    @extend_schema(responses={202: LostPlanSerializer})
    def post(self, request: HttpRequest) -> Response:
        """All of the preview, or nothing; asked for twice it is done once. Completed and archived requests go on again."""
        data: Any = LostFilesConfirmedSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        given = data.validated_data
        plan = lost_files_make_again(
            lfns=given["files"], confirm=given["confirm"], actor=actor_of(request), reason=given["reason"]
        )
        return _answer(plan, status.HTTP_202_ACCEPTED)
