"""What a request's work units left at sites."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.models import Leftover
from requests_app.models import Request
from requests_app.selectors.leftovers import leftovers_by_site, leftovers_of
from wms2.api.views import ExtraView

MOST = 1000


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


class RequestLeftoversView(ExtraView):
    """Files that nobody needs any more: what was removed, when, by which job, and what could not be."""

    serializer_class = RequestLeftoversSerializer

    def get(self, request: HttpRequest, request_name: str) -> Response:
        """Of all rounds that the cleaner has looked at; units that had left nothing are not among them."""
        row = get_object_or_404(Request, request_name=request_name)
        return Response(self.get_serializer({"sites": leftovers_by_site(row), "units": leftovers_of(row)[:MOST]}).data)
