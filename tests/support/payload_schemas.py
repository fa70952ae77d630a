"""Validates side files against the JSON Schemas in ``docs/schemas``."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.support.places import ROOT

FOLDER = ROOT / "docs" / "schemas"
SCHEMAS: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
_REGISTRY: Registry[Any] = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in SCHEMAS.values())


def validate(name: str, document: dict[str, Any]) -> None:
    """Raises jsonschema's ValidationError when the document does not follow the schema."""
    Draft202012Validator(SCHEMAS[name], registry=_REGISTRY).validate(document)
