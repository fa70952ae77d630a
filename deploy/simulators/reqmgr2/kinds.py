"""The types of request arguments: how ReqMgr2 converts what was sent, and what it cannot convert."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of argument. ``name`` is what ReqMgr2 prints; ``convert`` raises ValueError or TypeError."""

    name: str
    convert: Callable[[Any], Any]


def to_list(value: Any) -> list[Any]:
    """A list as it is; a comma separated text as a list."""
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        parts = value.lstrip(" [").rstrip(" ]").split(",")
        return [] if parts == [""] else [part.strip(" '\"") for part in parts]
    raise ValueError(f"Can't convert to list {value}")


def _to_non_empty_list(value: Any) -> list[Any]:
    found = to_list(value)
    if not found:
        raise ValueError(f"Input data cannot be an empty list {value}")
    return found


def to_bool(value: Any) -> bool:
    """True, False and their English spellings; nothing else (not 1, not "yes")."""
    if value is True or (isinstance(value, str) and value in ("True", "true", "TRUE")):
        return True
    if value is False or (isinstance(value, str) and value in ("False", "false", "FALSE")):
        return False
    raise ValueError(f"Can't convert to bool: {value}")


def _to_lumi_list(value: Any) -> dict[str, list[list[int]]]:
    try:
        data = (json.loads(value) if isinstance(value, str) else value) or {}
        return {str(run): _merged([(int(first), int(last)) for first, last in spans]) for run, spans in data.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"Could not parse LumiList, {type(value)}: {value}") from error


def _merged(spans: list[tuple[int, int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged


def _to_text(value: Any) -> str:
    if isinstance(value, tuple | list | set | dict):
        raise ValueError(f"We're not supposed to convert {value} to string.")
    return str(value)


def _same_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("is not a string")
    return value


STR = Kind("str", _same_text)
INT = Kind("int", int)
FLOAT = Kind("float", float)
LIST = Kind("makeList", to_list)
NON_EMPTY_LIST = Kind("makeNonEmptyList", _to_non_empty_list)
BOOL = Kind("strToBool", to_bool)
LUMI_LIST = Kind("makeLumiList", _to_lumi_list)
DICT = Kind("dict", dict)
RAW_LIST = Kind("list", list)
ANY_TEXT = Kind("safeStr", _to_text)
