"""What clients send: a new request, changes. Unknown fields are refused everywhere."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from requests_app.models import RequestStatus
from requests_app.services.decisions import MAX_PRIORITY
from requests_app.services.intake import Received
from requests_app.work.production_steps import steps_read
from wms2.api.serializers import MAX_REASON, NameField, ShareField, StrictSerializer, TextField, WordField
from wms2.errors import InvalidTransition

#: The operation for each status that a client might try to set; the others are the life cycle's.
ACTION_OF_STATUS = {
    RequestStatus.ABORTED: "DELETE /api/v1/requests/{name}?reason=...",
    RequestStatus.HELD: "POST /api/v1/requests/{name}/hold",
    RequestStatus.QUEUED: "POST /api/v1/requests/{name}/release",
    RequestStatus.STOPPING: "POST /api/v1/requests/{name}/stop",
    RequestStatus.FAILED: "POST /api/v1/requests/{name}/fail",
}


class ProductionStepSerializer(StrictSerializer):
    """At a share of the work done the rest goes on with another priority."""

    fraction = ShareField(help_text="above 0, below 1, above that of the step before")
    priority = serializers.IntegerField(min_value=0, max_value=MAX_PRIORITY)


class StepsField(serializers.ListField):
    """Production steps in their order; an error names the step's place."""

    child = ProductionStepSerializer()

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """The whole list, after each step by itself."""
        steps = super().run_validation(data)
        try:
            steps_read(steps)
        except InvalidTransition as error:
            raise serializers.ValidationError(str(error)) from error
        return steps


class _ImportSerializer(StrictSerializer):
    """What both ways of importing share."""

    submit = serializers.BooleanField(default=True, help_text="false: stored as new, which WMS2 leaves alone until submitted")
    urgent = serializers.BooleanField(default=False, help_text="before all that is not urgent in the admission queue")
    adaptive = serializers.BooleanField(
        required=False, help_text="in rounds, each sized by what those before measured; default: adaptive_default"
    )
    priority = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_PRIORITY, help_text="instead of the document's"
    )
    production_steps = StepsField(required=False, help_text="step back in priority when a share of the work is done")
    pools = serializers.ListField(
        child=serializers.CharField(max_length=100), required=False, max_length=100,
        help_text="HTCondor pools that its DAGs may go to; default: all",
    )  # fmt: skip
    family_of = NameField(required=False, help_text="a request into whose output datasets it may write, e.g. one it recovers")
    family_reason = TextField(required=False, max_length=MAX_REASON, help_text="why it may; needed with family_of")
    in_group = NameField(required=False, help_text="a group that it completes together with; made if there is none")
    depends_on = serializers.ListField(
        child=NameField(), required=False, max_length=100, help_text="requests that complete before it begins"
    )

    def received(self) -> Received:
        """As the service wants it."""
        return Received(**{name: value for name, value in self.validated_data.items() if name != "source"})


class RequestByNameSerializer(_ImportSerializer):
    """A request that ReqMgr2 has."""

    elsewhere = ("document",)
    request_name = NameField(
        help_text="its name at ReqMgr2",
        error_messages={"required": "give the name of a request that ReqMgr2 has here, or a whole one as 'document'"},
    )
    source = WordField(  # type: ignore[assignment]  # the metaclass takes fields out of the class
        choices=["reqmgr2"], required=False, help_text="where the document is"
    )


class RequestByDocumentSerializer(_ImportSerializer):
    """A request as a document: whole, or a createRequest and assignRequest pair."""

    elsewhere = ("source",)
    document = serializers.DictField(help_text="of ReqMgr2's form")
    request_name = NameField(required=False, help_text="to import it under; default: the document's own")


#: Both, for the schema.
REQUEST_IMPORT = PolymorphicProxySerializer(
    component_name="RequestImport",
    serializers=[RequestByNameSerializer, RequestByDocumentSerializer],
    resource_type_field_name=None,
)


def import_serializer(data: Any) -> _ImportSerializer:
    """The serializer for what was sent: with a ``document``, or by name."""
    by_document = isinstance(data, dict) and "document" in data
    return (RequestByDocumentSerializer if by_document else RequestByNameSerializer)(data=data)


@extend_schema_field({"type": "string", "enum": [RequestStatus.SUBMITTED.value]})
class StatusField(WordField):
    """Any status is understood, one is taken; the schema names only that one."""


class RequestChangeSerializer(StrictSerializer):
    """PATCH: the priority, the production steps, adaptive rounds, and NEW -> SUBMITTED. Everything else has an operation."""

    priority = serializers.IntegerField(required=False, min_value=0, max_value=MAX_PRIORITY)
    status = StatusField(choices=RequestStatus.choices, required=False)
    production_steps = StepsField(required=False, help_text="instead of those still to come; empty: none")
    adaptive = serializers.BooleanField(required=False, help_text="from the next round on")
    confirm = serializers.BooleanField(default=False, help_text="a production step that is passed already is meant")
    reason = TextField(required=False, max_length=MAX_REASON, help_text="why; kept in the audit")

    def validate_status(self, value: str) -> str:
        """Names the operation of what may not be set."""
        if value == RequestStatus.SUBMITTED:
            return value
        action = ACTION_OF_STATUS.get(RequestStatus(value))
        if action:
            raise serializers.ValidationError(f"cannot be set to '{value}'; use {action}", code="use_action")
        raise serializers.ValidationError(f"cannot be set to '{value}'; only the life cycle does that", code="use_action")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Something must be asked for."""
        if not attrs.keys() & {"priority", "status", "production_steps", "adaptive"}:
            raise serializers.ValidationError({"priority": "give priority, production_steps, adaptive, or status 'submitted'"})
        return attrs
