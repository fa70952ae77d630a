"""Validates side files against the JSON Schemas in ``docs/schemas``, and as they were in the release before, which reads them."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.support import former_release
from tests.support.places import ROOT

FOLDER = ROOT / "docs" / "schemas"
SCHEMAS: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
_FORMER: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in (former_release.FOLDER / "schemas").glob("*.json")}


def _registry(schemas: dict[str, Any]) -> Registry[Any]:
    return Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas.values())


def validate(name: str, document: dict[str, Any]) -> None:
    """Raises jsonschema's ValidationError when the document does not follow the schema, or what it was in the former release."""
    for schemas in (SCHEMAS, _FORMER):
        if name in schemas:
            Draft202012Validator(schemas[name], registry=_registry(schemas)).validate(document)
