"""The next processing version of a document: every version it names, one higher, so that no output keeps its dataset's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from requests_app.intake.documents import merge_document, sub_documents

_KEY = "ProcessingVersion"
#: Names of the old outputs and the old request: rebuilt for the new version.
_STALE = ("OutputDatasets", "RequestName", "RequestStatus", "RequestTransition", "OutputModulesLFNBases", "_id", "_rev")


def next_version(raw: object) -> dict[str, Any]:
    """The document, merged, asking for the next version.

    A document or a step that names none has version 1. Every value of a map by step or task is raised, and every step's own.

    Raises:
        DocumentRefused: ``raw`` is no request document.
    """
    document: dict[str, Any] = {key: value for key, value in merge_document(raw).items() if key not in _STALE}
    inner = [fields for _, fields in sub_documents(document)]
    above = document.get(_KEY)
    if isinstance(above, dict):
        names = [str(fields.get("StepName") or fields.get("TaskName")) for fields in inner if not _names(fields)]
        document[_KEY] = {**dict.fromkeys(names, 2), **{name: _next(value) for name, value in above.items()}}
    else:
        document[_KEY] = _next(above) if _names(document) else 2
    for fields in inner:
        if _names(fields):
            fields[_KEY] = _next(fields[_KEY])
    return document


def _names(fields: Mapping[str, Any]) -> bool:
    return fields.get(_KEY) not in (None, "")


def _next(value: Any) -> Any:
    """A number, or text of one; anything else is left for intake to refuse."""
    try:
        return int(value) + 1
    except (TypeError, ValueError):
        return value
