"""Files that were lost, by their LFNs, over any number of requests: what is concerned, and having it made again (ADR 0021)."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.services.lost_files import (
    MOST_FILES,
    LostDataset,
    LostPlan,
    RequestLoss,
    lost_files_make_again,
    lost_files_plan,
)
from wms2.api.actions import actor_of
from wms2.api.answers import answer
from wms2.api.serializers import ReasonSerializer, StrictSerializer, TextField
from wms2.api.shown import shown
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


LostDatasetSerializer = answer(
    "LostDataset", LostDataset, "How many files of a dataset go, and why.",
    made_from_lost="made from files that go",
    drawn_in="hold pieces of the same work as files that go",
)  # fmt: skip
RequestLossSerializer = answer(
    "RequestLoss", RequestLoss, "What a request takes back and makes again.",
    "request.request_name", "request.status", "then", "datasets", "work_units=units", "lumis", "events", "files",
    then="what becomes of the request",
    work_units="of which pieces are made again",
    lumis="made again; generated ones under new numbers",
    events="of its input, or generated; 0 where work is split by lumi",
    files="LFN -> why it goes; empty: it is lost",
)  # fmt: skip
LostPlanSerializer = answer(
    "LostPlan", LostPlan, "Everything that is concerned.",
    confirm="to be sent to have it done; empty: nothing would be done",
    unknown="no files that WMS2 has made",
    already="LFN -> it is invalid, or being made again",
    refused="LFN -> why it cannot be made again now",
    left="made from files that go, and not made again: LFN -> why; each gets a case",
)  # fmt: skip


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
