"""Everything that no retry brings on any more; the verbs are made from ``requests_app.control_verbs``."""

from __future__ import annotations

from typing import ClassVar

import django_filters
from rest_framework import serializers

from requests_app.models import DeadLetter, LetterKind
from requests_app.services.letters import ADVICE, letters_shown
from wms2.api.filters import ChoicesFilter, TextFilter
from wms2.api.views import RowsViewSet


class DeadLetterSerializer(serializers.ModelSerializer):
    """One of them, with what to do about its kind."""

    computed_from: ClassVar = {"todo": "kind"}
    request_name = serializers.CharField(source="request_id", allow_null=True)
    todo = serializers.SerializerMethodField(help_text="what it means, and what to do")

    class Meta:
        model = DeadLetter
        fields: tuple[str, ...] = ("id", "kind", "row", "request_name", "what", "attempts", "since", "last_error", "todo")

    def get_todo(self, letter: DeadLetter) -> str:
        """By its kind."""
        return ADVICE[LetterKind(letter.kind)]


class DeadLetterFilters(django_filters.FilterSet):
    """By kind and request."""

    kind = ChoicesFilter(choices=LetterKind.choices)
    request = TextFilter(field_name="request_id", max_length=255, help_text="request name")


class DeadLetterViewSet(RowsViewSet):
    """What waits for a person after retries were used up or refused, of requests and of the whole installation."""

    queryset = letters_shown()
    serializer_class = DeadLetterSerializer
    filterset_class = DeadLetterFilters
    ordering = ("since",)
    ordering_fields = ("since", "kind")

    def compute(self, lines: list[dict[str, object]]) -> None:
        """What to do."""
        for line in lines:
            line["todo"] = ADVICE[LetterKind(str(line["kind"]))]


#: It is off the list once a verb has been done.
AS_IT_WAS = dict.fromkeys(("retry", "discard"), (DeadLetterSerializer, lambda row, made, given: row))
