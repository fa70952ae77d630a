"""The forms in which a request document comes, made into one flat document; and documents made of documents.

Accepted: a whole ReqMgr2 document as ``GET /request`` gives it, bare, as ``{name: document}`` or as ``{"result": [...]}``; and a
pair ``{"createRequest": ..., "assignRequest": ...}``, where the assignment wins. Anything else is refused by name.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from requests_app.intake.findings import Findings, shown_name
from requests_app.intake.known import IRRELEVANT, PER_STEP, USED_TOP
from requests_app.intake.values import shown
from wms2.errors import DocumentRefused, Problem

_CREATE, _ASSIGN = "createRequest", "assignRequest"
_SUB_DOCUMENT = re.compile(r"(Step|Task)[1-9]\d{0,2}", re.ASCII)
_RECOGNISING_KEYS = (USED_TOP | set(IRRELEVANT)) - {"_id", "_rev"}
_VERSION = "ProcessingVersion"
#: Names of the old outputs and the old request: rebuilt for the new version.
_STALE = ("OutputDatasets", "RequestName", "RequestStatus", "RequestTransition", "OutputModulesLFNBases", "_id", "_rev")
#: Deeper nesting is no ReqMgr2 document, and would overflow the stack when it is copied.
_MAX_DEPTH = 30
#: Longer integers cannot be written as JSON again.
_MAX_BITS = 4096


def _refused(name: str, text: str) -> DocumentRefused:
    return DocumentRefused([Problem(shown_name(name), text)])


def sub_documents(document: Mapping[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """The steps and tasks of a document: (``Step2``, its map), in the document's order."""
    for key, value in document.items():
        if _SUB_DOCUMENT.fullmatch(key) and isinstance(value, dict):
            yield key, value


def check_storable(raw: object) -> None:
    """Refuse what no JSON column can keep, wherever in the document it stands.

    Raises:
        DocumentRefused: NaN or infinity, a NUL or half a surrogate pair in text, a key that is no text, or nesting too deep.
    """
    findings = Findings()
    pending: list[tuple[str, object, int]] = [("", raw, 0)]
    while pending:
        path, value, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise _refused(path, f"is nested more than {_MAX_DEPTH} levels deep")
        if isinstance(value, dict):
            for key, inner in value.items():
                _check_text(path or "document", key, "key", findings)
                pending.append((f"{path}.{key}" if path else str(key), inner, depth + 1))
        elif isinstance(value, list):
            pending.extend((path, inner, depth + 1) for inner in value)
        elif isinstance(value, float) and not math.isfinite(value):
            findings.problem(path or "document", "must be a finite number, not NaN or infinity")
        elif isinstance(value, str):
            _check_text(path or "document", value, "text", findings)
        elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
            findings.problem(path or "document", f"must be a number of a usual size, not {shown(value)}")
        elif value is not None and not isinstance(value, bool | int | float):
            findings.problem(path or "document", f"{type(value).__name__} is not a JSON type")
    findings.refuse_if_any()


def _check_text(path: str, value: object, kind: str, findings: Findings) -> None:
    if not isinstance(value, str):
        findings.problem(path, f"a {kind} must be text, not {shown(value)}")
    elif "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
        findings.problem(path, f"holds a {kind} that cannot be stored: {shown(value)}")


def merge_document(raw: object) -> dict[str, object]:
    """Unwrap and merge ``raw`` into one flat ReqMgr2 document; ``raw`` is left as it is.

    Of a pair, the assignment's values replace the creation's; where a field may differ per step, one assigned value replaces the
    steps' own values, and an assigned map {StepName: value} stays a map at the top (it wins over the steps when read).

    Raises:
        DocumentRefused: not a document of a known form, or one that cannot be stored.
    """
    check_storable(raw)
    found = _unwrap(raw)
    if _CREATE not in found and _ASSIGN not in found:
        return copy.deepcopy(found)
    findings = Findings()
    parts: dict[str, dict[str, object]] = {}
    for key in (_CREATE, _ASSIGN):
        part = found.get(key)
        if isinstance(part, dict):
            parts[key] = part
        else:
            findings.problem(key, "is missing" if part is None else f"must be a map, not {shown(part)}")
    for key in found:
        if key not in (_CREATE, _ASSIGN):
            findings.problem(key, f"stands beside {_CREATE} and {_ASSIGN}; put it into one of them")
    findings.refuse_if_any()
    return _assign(copy.deepcopy(parts[_CREATE]), copy.deepcopy(parts[_ASSIGN]))


def with_fields(raw: dict[str, object], **fields: object) -> dict[str, object]:
    """A copy of ``raw`` (any accepted form) with other values of these fields, in the part whose values count."""
    changed = copy.deepcopy(raw)
    found = _unwrap(changed)
    assigned = found.get(_ASSIGN)
    (assigned if isinstance(assigned, dict) else found).update(fields)
    return changed


def with_input(raw: dict[str, object], old: str, new: str) -> dict[str, object]:
    """A copy of ``raw`` (any accepted form) that reads the dataset ``new`` wherever it read ``old``."""
    merged = merge_document(raw)
    for part in (merged, *(inner for _, inner in sub_documents(merged))):
        if part.get("InputDataset") == old:
            part["InputDataset"] = new
    return merged


def _unwrap(raw: object) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise _refused("document", f"must be a JSON object with a ReqMgr2 request, not {shown(raw)}")
    if set(raw) == {"result"}:
        raw = _only_result(raw["result"])
    if _is_document(raw):
        return raw
    if len(raw) == 1:
        inner = next(iter(raw.values()))
        if isinstance(inner, dict) and _is_document(inner):
            return inner
    keys = ", ".join(sorted(key[:40] for key in raw)[:8]) or "none"
    raise _refused("document", f"is neither a ReqMgr2 request nor a {_CREATE} and {_ASSIGN} pair; its fields: {keys}")


def _only_result(result: object) -> dict[str, object]:
    if not isinstance(result, list):
        raise _refused("result", f"must be a list, not {shown(result)}")
    if len(result) != 1:
        raise _refused(
            "result", "is empty: ReqMgr2 has no such request" if not result else f"holds {len(result)} requests; give one"
        )
    if not isinstance(result[0], dict):
        raise _refused("result", f"must hold a request, not {shown(result[0])}")
    return result[0]


def _is_document(candidate: Mapping[str, object]) -> bool:
    return _CREATE in candidate or _ASSIGN in candidate or any(key in _RECOGNISING_KEYS for key in candidate)


def _assign(document: dict[str, object], assignment: dict[str, object]) -> dict[str, object]:
    given = {key: value for key, value in assignment.items() if value is not None}
    for key in PER_STEP:
        assigned, created = given.get(key), document.get(key)
        if assigned is None:
            continue
        if isinstance(assigned, dict) and isinstance(created, dict):
            given[key] = {**created, **assigned}
        for _, inner in sub_documents(document):
            if not isinstance(assigned, dict):
                inner.pop(key, None)
            elif created is not None and not isinstance(created, dict) and inner.get(key) is None:
                inner[key] = created  # the map takes the top-level value's place; steps it does not name keep this one
    document.update(given)
    return document


def next_version(raw: object) -> dict[str, Any]:
    """The document, merged, asking for the next version.

    A document or a step that names none has version 1. Every value of a map by step or task is raised, and every step's own.

    Raises:
        DocumentRefused: ``raw`` is no request document.
    """
    document: dict[str, Any] = {key: value for key, value in merge_document(raw).items() if key not in _STALE}
    inner = [fields for _, fields in sub_documents(document)]
    above = document.get(_VERSION)
    if isinstance(above, dict):
        names = [str(fields.get("StepName") or fields.get("TaskName")) for fields in inner if not _names_version(fields)]
        document[_VERSION] = {**dict.fromkeys(names, 2), **{name: _next_number(value) for name, value in above.items()}}
    else:
        document[_VERSION] = _next_number(above) if _names_version(document) else 2
    for fields in inner:
        if _names_version(fields):
            fields[_VERSION] = _next_number(fields[_VERSION])
    return document


def _names_version(fields: Mapping[str, Any]) -> bool:
    return fields.get(_VERSION) not in (None, "")


def _next_number(value: Any) -> Any:
    """A number, or text of one; anything else is left for intake to refuse."""
    try:
        return int(value) + 1
    except (TypeError, ValueError):
        return value
