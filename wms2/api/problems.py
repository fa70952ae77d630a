"""Errors on the wire: ``application/problem+json`` (RFC 9457) with a code to act on, the field it is about, and a hint.

Owns: the body's form, and which exception of ``wms2.errors``, Django or DRF becomes which answer. Not here: who raises them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from wms2.runtime.storable import storable

MEDIA_TYPE = "application/problem+json"
#: ``type`` is this and the code: a name, not an address; docs/api.md lists them.
TYPE_PREFIX = "urn:wms2:problem:"


@dataclass(frozen=True, slots=True)
class Problem:
    """One answer that is no success. ``problems`` lists every wrong field when there may be several.

    ``existing`` names what is there already in place of what was to be made: ``request_name``, ``status``, ``url``.
    """

    status: int
    code: str
    detail: str
    field: str | None = None
    hint: str | None = None
    problems: tuple[tuple[str, str], ...] = ()
    existing: Mapping[str, str] | None = None

    def body(self) -> dict[str, Any]:
        """The JSON object."""
        body: dict[str, Any] = {
            "type": TYPE_PREFIX + self.code,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "field": self.field,
            "hint": self.hint,
        }
        if self.problems:
            body["problems"] = [{"field": field, "problem": text} for field, text in self.problems]
        if self.existing:
            body["existing"] = dict(self.existing)
        answer: dict[str, Any] = storable(body)  # half a surrogate pair that a client sent could not be encoded
        return answer

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """The answer, for a DRF view."""
        return Response(self.body(), status=self.status, headers=dict(headers or {}), content_type=MEDIA_TYPE)


class ProblemError(APIException):
    """Raised by views and serializers for a problem of their own, with headers of the answer if need be."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        self.problem, self.headers = problem, dict(headers or {})
        self.status_code = problem.status
        super().__init__(problem.detail, problem.code)


def bad_field(field: str, text: str, *, hint: str | None = None, code: str = "invalid") -> ProblemError:
    """400 about one field or query parameter."""
    problem = Problem(status.HTTP_400_BAD_REQUEST, code, f"{field}: {text}", field, hint, ((field, text),))
    return ProblemError(problem)


def flattened(errors: Any, path: str = "") -> list[tuple[str, str]]:
    """DRF's nested error details as (field path, text) pairs: ``production_steps.0.fraction``."""
    if isinstance(errors, Mapping):
        found: list[tuple[str, str]] = []
        for name, value in errors.items():
            inner = path if name == "non_field_errors" else f"{path}.{name}" if path else str(name)
            found += flattened(value, inner)
        return found
    if isinstance(errors, Sequence) and not isinstance(errors, str):
        nested = any(isinstance(value, Mapping | list) for value in errors)
        return [
            pair
            for index, value in enumerate(errors)
            for pair in flattened(value, f"{path}.{index}" if nested and path else str(index) if nested else path)
        ]
    return [(path, str(errors))]


def several(pairs: Sequence[tuple[str, str]]) -> str:
    """One line about all of them."""
    return "; ".join(f"{field}: {text}" if field else text for field, text in pairs)
