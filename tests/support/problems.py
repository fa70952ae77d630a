"""Asserting on problems."""

from __future__ import annotations

from typing import Any


def problem(response: Any, status: int, code: str, *, field: str | None = None) -> dict[str, Any]:
    """The body of an answer that must be this problem."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "code", "field", "hint"} <= body.keys()
    assert (body["status"], body["code"]) == (status, code), body
    assert body["type"] == f"urn:wms2:problem:{code}"
    if field is not None:
        assert body["field"] == field, body
    return body
