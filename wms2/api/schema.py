"""OpenAPI: what drf-spectacular does not know by itself. The settings name this module, so it imports no view."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework.permissions import SAFE_METHODS

from wms2.api.pagination import KeysetPagination
from wms2.api.problems import MEDIA_TYPE
from wms2.api.serializers import ProblemSerializer

Direction = Literal["request", "response"]
_IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="ETag of the answer that the decision was made on; 412 and nothing done if there is another version by now",
)
_ONCE = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[\\x21-\\x7e]{1,200}$"},
    OpenApiParameter.HEADER,
    description="a new one, e.g. a UUID, for each thing to be done: the same call again is answered as the first was",
)
_ETAG = OpenApiParameter(
    "ETag", str, OpenApiParameter.HEADER, description="version, for If-Match; counts may move under it", response=True
)
#: What every client must be ready for; nothing was done then.
_WAITS = {"429": "Asked too often by this identity", "503": "Too much to do, or something that is needed does not answer"}


class ProblemAutoSchema(AutoSchema):
    """Adds to each operation that anything but success is a problem, and that a body, where there is one, must be there."""

    def get_override_parameters(self) -> list[Any]:
        """Versions, where they are kept."""
        found: list[Any] = super().get_override_parameters()
        is_versioned = getattr(self.view, "is_versioned", None)
        if is_versioned is None:
            return found
        once = [] if self.method in SAFE_METHODS else [_ONCE]
        return [*found, *once, *((_IF_MATCH, _ETAG) if is_versioned(self.method) else ())]

    def _get_request_body(self, direction: Direction = "request") -> dict[str, Any] | None:
        body: dict[str, Any] | None = super()._get_request_body(direction)  # type: ignore[no-untyped-call]
        return None if body is None else {**body, "required": True}

    def _get_response_bodies(self, direction: Direction = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        problem = self.resolve_serializer(ProblemSerializer, direction)
        bodies["default"] = {
            "description": "A problem: what is wrong, a code to act on, the field, a hint",
            "content": {MEDIA_TYPE: {"schema": problem.ref}},
        }
        waits = {"headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}}}
        for status, reported in _WAITS.items():
            bodies.setdefault(status, {**bodies["default"], **waits, "description": reported})
        if self._is_list_view() and isinstance(getattr(self.view, "paginator", None), KeysetPagination):
            bodies["200"]["content"]["text/csv"] = {"schema": {"type": "string"}}  # with ?format=csv
        return bodies


class StrictSerializerExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Strict input takes no other fields."""

    target_class = "wms2.api.serializers.StrictSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        """Say so."""
        schema: dict[str, Any] = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)  # type: ignore[no-untyped-call]
        return {**schema, "additionalProperties": False} if direction == "request" else schema


class _Scheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """A way to sign in as the schema writes it, before those of drf-spectacular for what it is derived from."""

    priority = 1
    kind: ClassVar[dict[str, str]]
    description: ClassVar[str]

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """As OpenAPI has it."""
        return {**self.kind, "description": self.description}


class TokenScheme(_Scheme):  # type: ignore[no-untyped-call]
    """``Authorization: Token <key>``: OpenAPI has no kind for DRF's word "Token", a header it is."""

    target_class = "wms2.api.tokens.ThrottledTokenAuthentication"
    name = "token"
    kind: ClassVar = {"type": "apiKey", "in": "header", "name": "Authorization"}
    description = "the word Token, a space, and the key: `Token 9944b09199c62bcf9418ad846dd0e4bbdfc6ee4b`"


class FrontEndScheme(_Scheme):  # type: ignore[no-untyped-call]
    """A client certificate at the front end. OpenAPI 3.0 has no kind for it: the header that makes the front end's word good."""

    target_class = "wms2.api.front_end.FrontEndAuthentication"
    name = "frontEnd"
    kind: ClassVar = {"type": "apiKey", "in": "header", "name": "cms-authn-hmac"}
    description = "set by CMS's front end, for a client certificate or single sign-on there; not by clients (docs/identities.md)"


class PersonalTokenScheme(_Scheme):  # type: ignore[no-untyped-call]
    """``Authorization: Bearer wms2_...``, of a token made at ``/account/``; the word Token is taken, too."""

    target_class = "wms2.api.tokens.PersonalTokenAuthentication"
    name = "personalToken"
    kind: ClassVar = {"type": "http", "scheme": "bearer"}
    description = "a personal token, `wms2_<prefix>_<secret>`, made at /account/"


class BearerScheme(_Scheme):  # type: ignore[no-untyped-call]
    """``Authorization: Bearer <JWT>``."""

    target_class = "wms2.identities.bearer.BearerAuthentication"
    name = "bearer"
    kind: ClassVar = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    description = "an access token of a trusted issuer, by the WLCG profile (docs/identities.md)"
