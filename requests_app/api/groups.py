"""Groups: requests that complete together (ADR 0087)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

import requests_app.verbs  # noqa: F401  declares them
from requests_app.models import RequestGroup
from requests_app.selectors.requests import groups_shown
from requests_app.work.groups import group_standing
from wms2.api.verbs import Resource, verb_urls
from wms2.api.views import RowsViewSet


class ChildSerializer(serializers.Serializer):
    """One request of a group."""

    request_name = serializers.CharField(source="request.request_name")
    status = serializers.CharField(source="request.status")
    there = serializers.BooleanField(help_text="it has enough events, and waits for the others or completes with them")
    skipped = serializers.BooleanField(help_text="it has ended with no events in DBS: nobody waits for it")


class GroupListSerializer(serializers.ModelSerializer):
    """One line of the list."""

    class Meta:
        model = RequestGroup
        fields: tuple[str, ...] = ("name", "note", "created_by", "created_at")


class GroupSerializer(serializers.Serializer):
    """A group as its requests have it now."""

    name = serializers.CharField(source="group.name")
    note = serializers.CharField(source="group.note")
    created_by = serializers.CharField(source="group.created_by")
    created_at = serializers.DateTimeField(source="group.created_at")
    status = serializers.CharField(help_text="empty, active, waiting, held, completing, completed, ended: of its requests")
    waiting_for = serializers.CharField(help_text="who is missing, and why")
    children = ChildSerializer(many=True)


VERBS = verb_urls(Resource(RequestGroup, GroupSerializer, groups_shown, key="name", picture=group_standing))


class GroupViewSet(RowsViewSet):
    """Requests that complete together. A group is made by the first request that is put into it."""

    queryset = groups_shown()
    serializer_class = GroupSerializer
    list_serializer_class = GroupListSerializer
    lookup_field = "name"
    ordering = ("-created_at",)
    ordering_fields = ("created_at", "name")

    def retrieve(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """Its requests, and whom the others wait for."""
        return Response(self.get_serializer(group_standing(self.get_object())).data)
