"""Admission: the queue, limits, and what would happen with others (spec 7.2; ADR 0025)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar, get_type_hints

from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from requests_app.actions.control import STARTS
from requests_app.admission.ordering import GroupKind
from requests_app.limits import limit_set
from requests_app.models import AdmissionLimit, Request, RequestStatus
from requests_app.selectors.admission import (
    AdmissionState,
    InUse,
    LimitInForce,
    QueuedRow,
    admission_state,
    config_in_force,
    limits_in_use,
    queue_now,
)
from requests_app.selectors.summary import stored_counts
from requests_app.selectors.what_if import Answer, Asked, Moved, queued_keys, what_if
from requests_app.services.admission_limits import limit_problem
from requests_app.services.decisions import MAX_PRIORITY
from wms2.actions import field_of
from wms2.api.actions import actor_of, serializer_field
from wms2.api.answers import Computed, Url, answer, rows
from wms2.api.pagination import MAX_PAGE, PAGE_PARAMETERS, NumberedPages
from wms2.api.preconditions import etag_of, if_match, require_version
from wms2.api.problems import bad_field
from wms2.api.serializers import MAX_REASON, NameField, ShareField, StrictSerializer, TextField, WordField
from wms2.api.shown import shown
from wms2.api.views import ApiView, RowsViewSet
from wms2.conf import Limits
from wms2.errors import ConfigurationError
from wms2.runtime.locks import LockKey, transaction_lock

#: Of each kind of what is tried in one question.
MOST_TRIED = 200


NextInQueueSerializer = answer(
    "NextInQueue", Request, "Who starts when the next slot is free.", "request_name", "priority", "queued_since=queued_at"
)
_COUNTS: dict[str, Any] = {
    "active_dags": "slots in use: live DAGs and requests being planned",
    "pausing": "of these, passed over until their next attempt",
    "next_in_queue": NextInQueueSerializer(allow_null=True, help_text="the first that no limit keeps"),
    "stopped": "why no request may start, at the last pass; empty: the first in order may",
}
AdmissionCountsSerializer = answer("AdmissionCounts", AdmissionState, "Slots and the queue's length.", **_COUNTS)
QueuedSerializer = answer(
    "Queued", QueuedRow, "One queued request.",
    "place", "request.request_name", "request.priority", "request.urgent", "request.campaign", "request.requestor",
    "queued_since=request.queued_at", "request.waiting_for", "request.next_attempt_at", "request.failed_attempts",
    "request.last_error", "risen_priority", "band", "expected_start", "expected_basis",
    place="from 1; null while it is passed over after a failure",
    risen_priority="its priority with what waiting has added",
    band="of priorities; empty: none",
    expected_start="null: not known",
    expected_basis="what that rests on, or why it is not known",
)  # fmt: skip
AdmissionQueueSerializer = answer(
    "AdmissionQueue", {**get_type_hints(AdmissionState), "next": Url | None, "queue": list[QueuedRow]},
    "Spec 7.2, admission queue, with one page of the queue.", **_COUNTS,
)  # fmt: skip


class NumberField(serializers.FloatField):
    """A number as it is: a whole one without a fraction."""

    def to_representation(self, value: Any) -> Any:
        """``10``, not ``10.0``."""
        return value if isinstance(value, int) else super().to_representation(value)


LimitSerializer = answer(
    "Limit", LimitInForce, "One limit in force.",
    "group", "name", "description", "value", "default", "changed_by", "reason", "changed_at",
    value=NumberField(),
    default=NumberField(),
)  # fmt: skip
LimitsInForceSerializer = answer("LimitsInForce", {"limits": list[LimitInForce]}, "Every limit that can be changed at run time.")


@extend_schema_serializer(component_name="AdmissionConfigChange")
class LimitsSerializer(StrictSerializer):
    """Limits to change, by name, and why."""

    reason = TextField(max_length=MAX_REASON)

    def get_fields(self) -> dict[str, serializers.Field]:
        """One per changeable limit."""
        return {
            **{name: serializer_field(field_of(name, field)) for name, field in sorted(Limits.model_fields.items())},
            **super().get_fields(),
        }

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """At least one."""
        if not attrs.keys() & Limits.model_fields.keys():
            raise serializers.ValidationError(
                {"max_active_dags": f"give at least one of: {', '.join(sorted(Limits.model_fields))}"}
            )
        return attrs


class AdmissionQueueView(ApiView):
    """Slots in use, who is next, and every queued request's place."""

    serializer_class = AdmissionQueueSerializer
    query_params: ClassVar[frozenset[str]] = NumberedPages.params

    @extend_schema(parameters=list(PAGE_PARAMETERS))
    def get(self, request: HttpRequest) -> Response:
        """A page of the queue in the order of admission."""
        pager, queue = NumberedPages(), queue_now()
        state = admission_state(stored_counts().requests[RequestStatus.QUEUED], queue)
        page = pager.paginate_queryset(queue, request)
        counts = {each.name: getattr(state, each.name) for each in fields(state)}
        body = {**counts, "next": pager.next_link(), "queue": page}
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


InUseSerializer = answer(
    "InUse", InUse, "A band, campaign or requester for which a limit holds.",
    dags="live, or being planned",
    starts_left="that may be made now; null: any number",
    next_start_at="null: now",
)  # fmt: skip
AdmissionLimitSerializer = rows(
    "AdmissionLimit", AdmissionLimit, "One limit; with an empty name that of all of the kind that have none of their own.",
    "id", "kind", "name", "least_priority", "max_dags", "rate_per_hour", "burst", "hard", "in_use", "reason", "actor",
    "updated_at",
    in_use=Computed(
        lambda limit: InUseSerializer(limits_in_use().get((limit.kind, limit.name), ()), many=True).data,
        InUseSerializer(many=True), column="id", help_text="for whom it holds, those with most DAGs first",
    ),
)  # fmt: skip


class AdmissionLimitViewSet(RowsViewSet):
    """Limits of bands of priorities, campaigns and requesters, with what is used of them."""

    queryset = AdmissionLimit.objects.all()
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


MovedSerializer = answer(
    "Moved", Moved, "A request that would stand elsewhere, or wait for something else.",
    place_before="null: it is not there now",
    waits_for="empty: it would start",
)  # fmt: skip
AnswerSerializer = answer(
    "Answer", Answer, "What would happen with the next pass; of each list at most a hundred.",
    next="in order, as slots become free",
)  # fmt: skip


class QueueQuerySerializer(serializers.Serializer):
    """What the page of the queue is asked for: a part of it, and what ``priority`` of ``request`` would change."""

    page = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, default=1)
    request = NameField(required=False)
    priority = serializers.IntegerField(min_value=0, max_value=MAX_PRIORITY, required=False)


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
