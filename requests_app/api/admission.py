"""Limits of admission, and what would happen with others (ADR 0094); verbs are made from ``requests_app.control_verbs``."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.admission.ordering import GroupKind
from requests_app.control_verbs import STARTS
from requests_app.models import AdmissionLimit
from requests_app.selectors.admission import admission_limits, limits_in_use
from requests_app.selectors.what_if import Asked, queued_keys, what_if
from requests_app.services.admission_limits import limit_problem
from requests_app.services.verbs import MAX_PRIORITY
from wms2.api.problems import bad_field
from wms2.api.serializers import NameField, ShareField, StrictSerializer, TextField
from wms2.api.shown import shown
from wms2.api.verbs import serializer_field
from wms2.api.views import ApiView, RowsViewSet

#: Of each kind of what is tried in one question.
MOST_TRIED = 200


class InUseSerializer(serializers.Serializer):
    """A band, campaign or requester for which a limit holds."""

    name = serializers.CharField()
    dags = serializers.IntegerField(help_text="live, or being planned")
    starts_left = serializers.IntegerField(allow_null=True, help_text="that may be made now; null: any number")
    next_start_at = serializers.DateTimeField(allow_null=True, help_text="null: now")


class AdmissionLimitSerializer(serializers.ModelSerializer):
    """One limit; with an empty name that of all of the kind that have none of their own."""

    computed_from: ClassVar = {"in_use": "id"}
    in_use = serializers.SerializerMethodField(help_text="for whom it holds, those with most DAGs first")

    class Meta:
        model = AdmissionLimit
        fields: tuple[str, ...] = (
            "id", "kind", "name", "least_priority", "max_dags", "rate_per_hour", "burst", "in_use", "reason", "actor",
            "updated_at",
        )  # fmt: skip

    @extend_schema_field(InUseSerializer(many=True))
    def get_in_use(self, limit: AdmissionLimit) -> Any:
        """As it is now."""
        return InUseSerializer(limits_in_use().get((limit.kind, limit.name), ()), many=True).data


class AdmissionLimitViewSet(RowsViewSet):
    """Limits of bands of priorities, campaigns and requesters, with what is used of them."""

    queryset = admission_limits()
    serializer_class = AdmissionLimitSerializer
    ordering = ("id",)
    ordering_fields = ("id", "kind", "name")

    def compute(self, lines: list[dict[str, Any]]) -> None:
        """What is used, for all together."""
        used = limits_in_use()
        for line in lines:
            line["in_use"] = InUseSerializer(used.get((line["kind"], line["name"]), ()), many=True).data


class TriedLimitSerializer(StrictSerializer):
    """A limit in place of that of the same kind and name, or one more."""

    kind = serializers.ChoiceField(choices=[kind.value for kind in GroupKind])
    name = TextField(max_length=100, allow_blank=True, default="", help_text="empty: of all that have none of their own")

    def get_fields(self) -> dict[str, serializers.Field]:
        """And what a limit says."""
        return {**super().get_fields(), **{one.name: serializer_field(one) for one in STARTS}}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """As a change would be."""
        field, problem = limit_problem(AdmissionLimit(**attrs))
        if field:
            raise serializers.ValidationError({field: problem})
        return attrs


class TriedChangeSerializer(StrictSerializer):
    """A queued request with another priority."""

    request_name = NameField()
    priority = serializers.IntegerField(min_value=0, max_value=MAX_PRIORITY, required=False)
    urgent = serializers.BooleanField(required=False)


class TriedRequestSerializer(StrictSerializer):
    """A request that is not there, queued now."""

    name = NameField(help_text="as the answer is to call it")
    priority = serializers.IntegerField(min_value=0, max_value=MAX_PRIORITY, default=100_000)
    urgent = serializers.BooleanField(default=False)
    campaign = TextField(max_length=100, allow_blank=True, default="")
    requester = TextField(max_length=100, allow_blank=True, default="")


class WhatIfSerializer(StrictSerializer):
    """What is to be tried, all together; nothing: as things are."""

    max_active_dags = serializers.IntegerField(min_value=0, max_value=100_000, required=False)
    aging_per_hour = ShareField(min_value=0, max_value=1_000_000, required=False)
    limits = serializers.ListField(child=TriedLimitSerializer(), default=list, max_length=MOST_TRIED)
    priorities = serializers.ListField(child=TriedChangeSerializer(), default=list, max_length=MOST_TRIED)
    further = serializers.ListField(child=TriedRequestSerializer(), default=list, max_length=MOST_TRIED)


class MovedSerializer(serializers.Serializer):
    """A request that would stand elsewhere, or wait for something else."""

    request_name = serializers.CharField()
    place_before = serializers.IntegerField(allow_null=True, help_text="null: it is not there now")
    place = serializers.IntegerField()
    waits_for_before = serializers.CharField(allow_blank=True)
    waits_for = serializers.CharField(allow_blank=True, help_text="empty: it would start")
    expected_start_before = serializers.DateTimeField(allow_null=True)
    expected_start = serializers.DateTimeField(allow_null=True)
    expected_basis = serializers.CharField()


class AnswerSerializer(serializers.Serializer):
    """What would happen with the next pass; of each list at most a hundred."""

    starts_now = serializers.ListField(child=serializers.CharField())
    starts_number = serializers.IntegerField()
    next = serializers.ListField(child=serializers.CharField(), help_text="in order, as slots become free")
    moved = MovedSerializer(many=True)
    moved_number = serializers.IntegerField()


class WhatIfView(ApiView):
    """What admission would do with other limits, priorities or further requests. Nothing is changed."""

    serializer_class = WhatIfSerializer

    @extend_schema(responses={200: AnswerSerializer})
    def post(self, request: HttpRequest) -> Response:
        """The same rules as the life cycle's, over the queue as it is."""
        data = WhatIfSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        return Response(shown(AnswerSerializer, what_if(_asked(data.validated_data))))


def _asked(given: dict[str, Any]) -> Asked:
    named = [change.pop("request_name") for change in given["priorities"]]
    for field, names in (("priorities", named), ("further", [each["name"] for each in given["further"]])):
        if len(set(names)) < len(names):
            raise bad_field(field, "names one of them twice")
    keys = queued_keys(named)
    for index, name in enumerate(named):
        if name not in keys:
            raise bad_field(f"priorities.{index}.request_name", f"{name} is not queued")
    return Asked(
        slots=given.get("max_active_dags"),
        aging_per_hour=given.get("aging_per_hour"),
        limits=[AdmissionLimit(**each) for each in given["limits"]],
        changes={keys[name]: change for name, change in zip(named, given["priorities"], strict=True)},
        further={each.pop("name"): each for each in given["further"]},
    )
