"""How the service stands, and the switch of new work."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

import requests_app.verbs  # noqa: F401  declares them
from requests_app.models import ServiceLevel
from requests_app.service_level import service_rows, stretch_of
from wms2.api.verbs import Resource, verb_urls
from wms2.api.views import ApiView


class ServiceLevelSerializer(serializers.ModelSerializer):
    """Its level with the signals of the last cycle, the switch, and the patience that trouble of the leader's host asks for."""

    no_new_work = serializers.CharField(allow_blank=True, help_text="why nothing new starts; empty when it may")
    stretch = serializers.SerializerMethodField(help_text="factor for time limits that judge others, 1 to 3")

    class Meta:
        model = ServiceLevel
        fields: tuple[str, ...] = (
            "level", "reason", "since", "signals", "no_new_work", "stopped_by", "stopped_reason", "stopped_at", "stretch",
            "trouble_reason", "updated_at",
        )  # fmt: skip

    def get_stretch(self, row: ServiceLevel) -> float:
        """Of its trouble."""
        return stretch_of(row.trouble)


class ServiceLevelView(ApiView):
    """How the service stands."""

    serializer_class = ServiceLevelSerializer

    def get(self, request: HttpRequest, pk: str) -> Response:
        """As of the last cycle."""
        return Response(self.get_serializer(get_object_or_404(service_rows(), pk=pk)).data)


SERVICE = Resource(ServiceLevel, ServiceLevelSerializer, service_rows)
VERBS = verb_urls(SERVICE)
