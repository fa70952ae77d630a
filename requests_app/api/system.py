"""Admission, life cycle and status endpoints (spec 7.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request as HttpRequest
from rest_framework.response import Response

from dags_app.selectors import schedds_counted
from requests_app.api.inputs import LimitsSerializer
from requests_app.api.system_serializers import (
    AdmissionQueueSerializer,
    LifecycleSerializer,
    LimitsInForceSerializer,
    SummarySerializer,
)
from requests_app.limits import limit_set
from requests_app.models import RequestStatus
from requests_app.selectors.admission import LimitInForce, admission_state, config_in_force, queue_now
from requests_app.selectors.lifecycle import lifecycle_state
from requests_app.selectors.summary import kept_counts, system_summary
from wms2.api.pagination import PAGE_PARAMETERS, NumberedPages
from wms2.api.preconditions import etag_of, if_match, require_version
from wms2.api.problems import bad_field
from wms2.api.shown import shown
from wms2.api.verbs import actor_of
from wms2.api.views import ApiView
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.locks import LockKey, transaction_lock


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


class LifecycleView(ApiView):
    """Whether requests are being driven: leader, last cycle, schedds."""

    serializer_class = LifecycleSerializer

    def get(self, request: HttpRequest) -> Response:
        """As the rows have it."""
        context = {**self.get_serializer_context(), "schedds": schedds_counted()}
        return Response(LifecycleSerializer(lifecycle_state(), context=context).data)


class StatusView(ApiView):
    """The whole installation at a glance."""

    serializer_class = SummarySerializer

    def get(self, request: HttpRequest) -> Response:
        """Counts by status, and what waits for a person."""
        summary = system_summary()
        named = {"instance": conf().instance, "environment": conf().environment}
        counts = {each.name: getattr(summary, each.name) for each in fields(summary)}
        return Response(shown(SummarySerializer, {**named, **counts}))
