"""Lists of rows beside requests: groups (ADR 0024), dead letters. Operations are made from the apps'
declarations.
"""

from __future__ import annotations

from typing import Any

import django_filters
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

import requests_app.actions  # noqa: F401  declares them
from requests_app.models import DeadLetter, DeadLetterKind, RequestGroup
from requests_app.services.dead_letters import ADVICE
from requests_app.work.groups import Child, GroupStatus, group_status
from wms2.api.actions import Resource, action_urls
from wms2.api.answers import Computed, answer, rows
from wms2.api.filters import ChoicesFilter, TextFilter
from wms2.api.views import RowsViewSet

ChildSerializer = answer(
    "Child", Child, "One request of a group.", "request.request_name", "request.status", "there", "skipped",
    there="it has enough events, and waits for the others or completes with them",
    skipped="it has ended with no events in DBS: no other request waits for it",
)  # fmt: skip
GroupListSerializer = rows("GroupList", RequestGroup, "One line of the list.", "name", "note", "created_by", "created_at")
GroupSerializer = answer(
    "Group", GroupStatus, "A group as its requests have it now.",
    "group.name", "group.note", "group.created_by", "group.created_at", "status", "waiting_for", "children",
    status="empty, active, waiting, held, completing, completed, ended: of its requests",
    waiting_for="who is missing, and why",
)  # fmt: skip
GROUP_ACTIONS = action_urls(Resource(RequestGroup, GroupSerializer, RequestGroup.objects.all, key="name", content=group_status))


class GroupViewSet(RowsViewSet):
    """Requests that complete together. A group is made by the first request that is put into it."""

    queryset = RequestGroup.objects.all()
    serializer_class = GroupSerializer
    list_serializer_class = GroupListSerializer
    lookup_field = "name"
    ordering = ("-created_at",)
    ordering_fields = ("created_at", "name")

    def retrieve(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """Its requests, and whom the others wait for."""
        return Response(self.get_serializer(group_status(self.get_object())).data)


DeadLetterSerializer = rows(
    "DeadLetter", DeadLetter, "One of them, with what to do about its kind.",
    "id", "kind", "row", "request_name=request_id", "what", "attempts", "since", "last_error",
    todo=Computed(lambda row: ADVICE[DeadLetterKind(row.kind)], column="kind", help_text="what it means, and what to do"),
)  # fmt: skip


class DeadLetterFilters(django_filters.FilterSet):
    """By kind and request."""

    kind = ChoicesFilter(choices=DeadLetterKind.choices)
    request = TextFilter(field_name="request_id", max_length=255, help_text="request name")


class DeadLetterViewSet(RowsViewSet):
    """What waits for a person after retries were used up or refused, of requests and of the whole installation."""

    queryset = DeadLetter.objects.all()
    serializer_class = DeadLetterSerializer
    filterset_class = DeadLetterFilters
    ordering = ("since",)
    ordering_fields = ("since", "kind")

    def compute(self, lines: list[dict[str, object]]) -> None:
        """What to do."""
        for line in lines:
            line["todo"] = ADVICE[DeadLetterKind(str(line["kind"]))]


#: It is off the list once an operation has been done.
DEAD_LETTER_ANSWERS = dict.fromkeys(("retry", "discard"), (DeadLetterSerializer, lambda row, made, given: row))
