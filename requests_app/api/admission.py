"""Admission: the queue, limits, and what would happen with others (spec 7.2; ADR 0025)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.admission.ordering import GroupKind
from requests_app.limits import CHANGEABLE, limit_set
from requests_app.models import AdmissionLimit, RequestStatus
from requests_app.selectors.admission import (
    LimitInForce,
    admission_limits,
    admission_state,
    config_in_force,
    limits_in_use,
    queue_now,
)
from requests_app.selectors.summary import kept_counts
from requests_app.selectors.what_if import Asked, queued_keys, what_if
from requests_app.services.admission_limits import limit_problem
from requests_app.services.verbs import MAX_PRIORITY
from requests_app.verbs.control import STARTS
from wms2.api.pagination import PAGE_PARAMETERS, NumberedPages
from wms2.api.preconditions import etag_of, if_match, require_version
from wms2.api.problems import bad_field
from wms2.api.serializers import MAX_REASON, NameField, ShareField, StrictSerializer, TextField, WordField
from wms2.api.shown import shown
from wms2.api.verbs import actor_of, serializer_field
from wms2.api.views import ApiView, RowsViewSet
from wms2.conf import Conf
from wms2.errors import ConfigurationError
from wms2.locks import LockKey, transaction_lock
from wms2.verbs import field_of

#: Of each kind of what is tried in one question.
MOST_TRIED = 200


class NextInQueueSerializer(serializers.Serializer):
    """Who starts when the next slot is free."""

    request_name = serializers.CharField()
    priority = serializers.IntegerField()
    queued_since = serializers.DateTimeField(source="queued_at", allow_null=True)


class AdmissionCountsSerializer(serializers.Serializer):
    """Slots and the queue's length."""

    active_dags = serializers.IntegerField(help_text="slots in use: live DAGs and requests being planned")
    max_active_dags = serializers.IntegerField()
    queued_workflows = serializers.IntegerField()
    pausing = serializers.IntegerField(help_text="of these, passed over until their next attempt")
    next_in_queue = NextInQueueSerializer(allow_null=True, help_text="the first that no limit keeps")
    stopped = serializers.CharField(allow_blank=True, help_text="why nobody may start, at the last pass; empty: who has its turn")


class QueuedSerializer(serializers.Serializer):
    """One queued request."""

    place = serializers.IntegerField(allow_null=True, help_text="from 1; null while it is passed over after a failure")
    request_name = serializers.CharField(source="request.request_name")
    priority = serializers.IntegerField(source="request.priority")
    urgent = serializers.BooleanField(source="request.urgent")
    campaign = serializers.CharField(source="request.campaign", allow_blank=True)
    requestor = serializers.CharField(source="request.requestor")
    queued_since = serializers.DateTimeField(source="request.queued_at", allow_null=True)
    waiting_for = serializers.CharField(source="request.waiting_for", allow_blank=True)
    next_attempt_at = serializers.DateTimeField(source="request.next_attempt_at", allow_null=True)
    failed_attempts = serializers.IntegerField(source="request.failed_attempts")
    last_error = serializers.CharField(source="request.last_error", allow_blank=True)
    risen_priority = serializers.IntegerField(allow_null=True, help_text="its priority with what waiting has added")
    band = serializers.CharField(allow_blank=True, help_text="of priorities; empty: none")
    expected_start = serializers.DateTimeField(allow_null=True, help_text="null: not known")
    expected_basis = serializers.CharField(allow_blank=True, help_text="what that rests on, or why it is not known")


class AdmissionQueueSerializer(AdmissionCountsSerializer):
    """Spec 7.2, admission queue, with one page of the queue."""

    next = serializers.URLField(allow_null=True)
    queue = QueuedSerializer(many=True)


class NumberField(serializers.FloatField):
    """A number as it is: a whole one without a fraction."""

    def to_representation(self, value: Any) -> Any:
        """``10``, not ``10.0``."""
        return value if isinstance(value, int) else super().to_representation(value)


class LimitSerializer(serializers.Serializer):
    """One limit in force."""

    group = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    value = NumberField()
    default = NumberField()
    changed_by = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    changed_at = serializers.DateTimeField(allow_null=True)


class LimitsInForceSerializer(serializers.Serializer):
    """Every limit that can be changed at run time."""

    limits = LimitSerializer(many=True)


@extend_schema_serializer(component_name="AdmissionConfigChange")
class LimitsSerializer(StrictSerializer):
    """Limits to change, by name, and why."""

    reason = TextField(max_length=MAX_REASON)

    def get_fields(self) -> dict[str, serializers.Field]:
        """One per changeable limit."""
        return {
            **{name: serializer_field(field_of(name, Conf.model_fields[name])) for name in sorted(CHANGEABLE)},
            **super().get_fields(),
        }

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """At least one."""
        if not attrs.keys() & CHANGEABLE:
            raise serializers.ValidationError({"max_active_dags": f"give at least one of: {', '.join(sorted(CHANGEABLE))}"})
        return attrs


class AdmissionQueueView(ApiView):
    """Slots in use, who is next, and every queued request's place."""

    serializer_class = AdmissionQueueSerializer
    query_params: ClassVar[frozenset[str]] = NumberedPages.params

    @extend_schema(parameters=list(PAGE_PARAMETERS))
    def get(self, request: HttpRequest) -> Response:
        """A page of the queue in the order of admission."""
        pager, queue = NumberedPages(), queue_now()
        state = admission_state(kept_counts().requests[RequestStatus.QUEUED], queue)
        rows = pager.paginate_queryset(queue, request)
        counts = {each.name: getattr(state, each.name) for each in fields(state)}
        body = {**counts, "next": pager.next_link(), "queue": rows}
        return Response(shown(AdmissionQueueSerializer, body))


def limits_etag(limits: Iterable[LimitInForce]) -> str:
    """All of them together."""
    return etag_of(*((limit.name, limit.value, limit.default, limit.changed_at) for limit in limits))


class AdmissionConfigView(ApiView):
    """Limits that can be changed at run time, each change audited."""

    serializer_class = LimitsInForceSerializer
    versioned: ClassVar[frozenset[str]] = frozenset({"get", "patch"})

    def get(self, request: HttpRequest) -> Response:
        """Values in force, defaults, and who changed them."""
        limits = config_in_force()
        return self.versioned_answer(request, self.get_serializer({"limits": limits}).data, limits_etag(limits))

    @extend_schema(request=LimitsSerializer, responses={200: LimitsInForceSerializer})
    def patch(self, request: HttpRequest) -> Response:
        """Change one limit or several, all or none, with a reason."""
        data = LimitsSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        asked: dict[str, Any] = dict(data.validated_data)
        reason = asked.pop("reason")
        demanded = if_match(request)
        with transaction_lock(LockKey.LIMITS):
            if demanded:
                require_version(demanded, limits_etag(config_in_force()))
            for name, value in sorted(asked.items()):
                try:
                    limit_set(name=name, value=value, actor=actor_of(request), reason=reason)
                except ConfigurationError as error:
                    raise bad_field(name, str(error).removeprefix(f"{name}: ")) from error
        limits = config_in_force()
        return Response(self.get_serializer({"limits": limits}).data, headers={"ETag": limits_etag(limits)})


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
            "id", "kind", "name", "least_priority", "max_dags", "rate_per_hour", "burst", "hard", "in_use", "reason", "actor",
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

    kind = WordField(choices=[kind.value for kind in GroupKind])
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
