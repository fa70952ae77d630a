"""What clients send: a new request, changes, limits. Unknown fields are refused everywhere."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from requests_app.api.filters import MAX_PRIORITY
from requests_app.limits import CHANGEABLE
from requests_app.models import RequestStatus
from requests_app.services.receiving import Received
from wms2.api.converters import NameConverter
from wms2.api.serializers import MAX_REASON, StrictSerializer
from wms2.conf import Conf

#: The verb for each status that somebody might try to set; the others are the life cycle's.
VERBS = {
    RequestStatus.ABORTED: "DELETE /api/v1/requests/{name}?reason=...",
    RequestStatus.HELD: "POST /api/v1/requests/{name}/hold",
    RequestStatus.QUEUED: "POST /api/v1/requests/{name}/release",
}
#: Larger limits mean nothing and would not fit where they are compared.
MAX_LIMIT = 10**15


class RequestImportSerializer(StrictSerializer):
    """By name from ReqMgr2, or by document; never both."""

    request_name = serializers.RegexField(
        f"^{NameConverter.regex}$", max_length=150, required=False,
        help_text="name at ReqMgr2; with a document, the name to import it under",
    )  # fmt: skip
    source = serializers.ChoiceField(  # type: ignore[assignment]  # the metaclass takes fields out of the class
        choices=["reqmgr2"], required=False, help_text="where the document is; default reqmgr2"
    )
    document = serializers.DictField(
        required=False, help_text="a ReqMgr2 document, whole, or a createRequest and assignRequest pair"
    )
    submit = serializers.BooleanField(default=True, help_text="false: stored as new, which WMS2 leaves alone until submitted")
    urgent = serializers.BooleanField(default=False, help_text="before all that is not urgent in the admission queue")
    priority = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_PRIORITY, help_text="instead of the document's"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Exactly one place to take the document from."""
        if "document" in attrs:
            if "source" in attrs:
                raise serializers.ValidationError({"source": "belongs to an import by name; leave it out with a document"})
        elif "request_name" not in attrs:
            raise serializers.ValidationError({"request_name": "give request_name (taken from ReqMgr2) or document"})
        return attrs

    def received(self) -> Received:
        """As the service wants it."""
        data = self.validated_data
        return Received(
            document=data.get("document"),
            request_name=data.get("request_name"),
            urgent=data["urgent"],
            submit=data["submit"],
            priority=data.get("priority"),
        )


class RequestChangeSerializer(StrictSerializer):
    """PATCH: the priority, and NEW -> SUBMITTED. Everything else has a verb."""

    priority = serializers.IntegerField(required=False, min_value=0, max_value=MAX_PRIORITY)
    status = serializers.ChoiceField(choices=RequestStatus.choices, required=False, help_text="only 'submitted'")
    reason = serializers.CharField(required=False, max_length=MAX_REASON, help_text="why; kept in the audit")

    def validate_status(self, value: str) -> str:
        """Names the verb of what may not be set."""
        if value == RequestStatus.SUBMITTED:
            return value
        verb = VERBS.get(RequestStatus(value))
        if verb:
            raise serializers.ValidationError(f"cannot be set to '{value}'; use {verb}", code="use_verb")
        raise serializers.ValidationError(f"cannot be set to '{value}'; only the life cycle does that", code="use_verb")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Something must be asked for."""
        if not attrs.keys() & {"priority", "status"}:
            raise serializers.ValidationError({"priority": "give priority, or status 'submitted'"})
        return attrs


def _limit_field(name: str) -> serializers.Field:
    what = Conf.model_fields[name].description or "see docs/configuration.md"
    if Conf.model_fields[name].annotation is float:
        return serializers.FloatField(required=False, min_value=0, max_value=1, help_text=what)
    return serializers.IntegerField(required=False, min_value=0, max_value=MAX_LIMIT, help_text=what)


@extend_schema_serializer(component_name="AdmissionConfigChange")
class LimitsSerializer(StrictSerializer):
    """Limits to change, by name, and why."""

    reason = serializers.CharField(max_length=MAX_REASON)

    def get_fields(self) -> dict[str, serializers.Field]:
        """One per changeable limit."""
        return {**{name: _limit_field(name) for name in sorted(CHANGEABLE)}, **super().get_fields()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """At least one."""
        if not attrs.keys() & CHANGEABLE:
            raise serializers.ValidationError({"max_active_dags": f"give at least one of: {', '.join(sorted(CHANGEABLE))}"})
        return attrs
