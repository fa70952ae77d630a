"""Input files of a request that wait for a site or were left out."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.models import InputFile, Request
from requests_app.selectors.input_files import troubled_input
from wms2.api.views import ExtraView


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


class RequestInputFilesView(ExtraView):
    """What of the input waits, and what was left out."""

    serializer_class = RequestInputFilesSerializer

    def get(self, request: HttpRequest, request_name: str) -> Response:
        """With the reason of each, since when, and who left it out."""
        row = get_object_or_404(Request, request_name=request_name)
        return Response(self.get_serializer(troubled_input(row)).data)
