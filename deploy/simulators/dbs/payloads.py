"""Typed decoding of DBS bodies, as Go's ``encoding/json`` does it.

A field of another JSON type is refused (code 122), an unknown field is ignored, a missing one or ``null`` becomes the zero
value. So ``"processing_version": "1"`` is refused and ``"processing_version"`` left out is 0.
"""

import json
from collections.abc import Mapping
from typing import Any

from deploy.simulators.dbs.errors import Code, DbsError

_ZERO: dict[type, Any] = {str: "", int: 0, float: 0.0, list: [], dict: {}}
_GO_NAME: dict[type, str] = {str: "string", int: "int64", float: "float64", list: "slice", dict: "struct"}

Fields = Mapping[str, type]


def parse_json(body: bytes, *, function: str, message: str) -> Any:
    """The JSON value of a body.

    Raises:
        DbsError: code 122, it is not JSON.
    """
    try:
        return json.loads(body)
    except ValueError as error:
        reason = f"invalid JSON: {error}" if body else "unexpected end of JSON input"
        raise DbsError(Code.UNMARSHAL, message, function=function, reason=reason) from error


def decode(fields: Fields, value: Any, *, record: str, function: str, message: str = "") -> dict[str, Any]:
    """One record with exactly the keys of ``fields``, each of its type.

    Raises:
        DbsError: code 122, the value is no object or a field has another type.
    """
    if not isinstance(value, dict):
        raise _mismatch(value, f"value of type {record}", function=function, message=message)
    return {
        name: _field(name, kind, value.get(name), record=record, function=function, message=message)
        for name, kind in fields.items()
    }


def decode_list(fields: Fields, values: Any, *, record: str, function: str, message: str = "") -> list[dict[str, Any]]:
    """A list of records; ``null`` is the empty list.

    Raises:
        DbsError: code 122, it is no list or an element does not fit.
    """
    if values is None:
        return []
    if not isinstance(values, list):
        raise _mismatch(values, f"value of type []{record}", function=function, message=message)
    return [decode(fields, value, record=record, function=function, message=message) for value in values]


def _field(name: str, kind: type, value: Any, *, record: str, function: str, message: str = "") -> Any:
    if value is None:
        return kind() if kind in (list, dict) else _ZERO[kind]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and not (isinstance(value, bool) and kind in (int, float)):
        return value
    raise _mismatch(value, f"struct field {record}.{name} of type {_GO_NAME[kind]}", function=function, message=message)


def _mismatch(value: Any, target: str, *, function: str, message: str) -> DbsError:
    reason = f"json: cannot unmarshal {_json_name(value)} into Go {target}"
    return DbsError(Code.UNMARSHAL, message, function=function, reason=reason)


def _json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "array", dict: "object", type(None): "null"}.get(type(value), "value")
