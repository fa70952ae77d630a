"""Foreign JSON values made into plain types. Knows no field; never guesses a type.

Owns the shape hazards of ReqMgr2 (docs/design/services.md, Documents): numbers that come as text or as float, lists that
come as one text, booleans that come as text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from requests_app.intake.lexicon import NameRule

_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{0,40})?([eE][+-]?\d{1,3})?", re.ASCII)
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_SHOWN_CHARACTERS = 80
_MAX_NAMED = 20
#: How the templates of ReqMgr2's test requests end a value that is still to be filled in.
_PLACEHOLDER = "-OVERRIDE-ME"

#: Largest value of a PostgreSQL bigint, and of what planning counts with.
BIGINT_MAX = 2**63 - 1


class Unreadable(ValueError):
    """A value that cannot be read as what its field holds; the text says what it must be."""


def shown(value: object) -> str:
    """A value for a message, cut short. An integer too long to print (over 4300 digits) is named by its size only."""
    if isinstance(value, int) and abs(value) > BIGINT_MAX:
        return f"a number of {value.bit_length()} bits"
    text = ascii(value) if not isinstance(value, list | dict) else f"a {'list' if isinstance(value, list) else 'map'}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def is_set(value: object) -> bool:
    """Whether a field holds anything: None, empty text, an empty list and an empty map are how ReqMgr2 says "not given"."""
    return value is not None and value not in ("", [], {}, ())


def _decimal(value: object) -> Decimal:
    if isinstance(value, bool):
        raise Unreadable(f"must be a number, not {shown(value)}")
    if isinstance(value, int):
        return Decimal(value) if abs(value) <= BIGINT_MAX else Decimal(BIGINT_MAX + 1).copy_sign(value)
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return Decimal(value.strip())
    raise Unreadable(f"must be a number, not {shown(value)}")


def whole(minimum: int, maximum: int) -> Callable[[object], int]:
    """Reader of whole numbers within ``minimum..maximum``; takes 8, 8.0, "8" and "8.0", never a boolean."""

    def convert(value: object) -> int:
        number = _decimal(value)
        if not minimum <= number <= maximum:
            raise Unreadable(f"must be between {minimum} and {maximum}, not {shown(value)}")
        if number != number.to_integral_value():
            raise Unreadable(f"must be a whole number, not {shown(value)}")
        return int(number)

    return convert


def real(minimum: float, maximum: float) -> Callable[[object], float]:
    """Reader of finite numbers above zero within ``minimum..maximum``; takes numbers and numbers as text."""

    def convert(value: object) -> float:
        number = _decimal(value)
        if number <= 0:
            raise Unreadable(f"must be above 0, not {shown(value)}")
        if not Decimal(str(minimum)) <= number <= Decimal(str(maximum)):
            raise Unreadable(f"must be between {minimum:g} and {maximum:g}, not {shown(value)}")
        return float(number)

    return convert


def flag(value: object) -> bool:
    """A boolean, or its name as text; numbers are not booleans."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() in _TRUE + _FALSE:
        return value.strip() in _TRUE
    raise Unreadable(f"must be true or false, not {shown(value)}")


def choice(*allowed: str) -> Callable[[object], str]:
    """Reader of one of a few words."""

    def convert(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Unreadable(f"must be {', '.join(allowed[:-1])} or {allowed[-1]}, not {shown(value)}")
        return str(value)

    return convert


def text(maximum_length: int) -> Callable[[object], str]:
    """Reader of free text without control characters."""

    def convert(value: object) -> str:
        if not isinstance(value, str):
            raise Unreadable(f"must be text, not {shown(value)}")
        if len(value) > maximum_length:
            raise Unreadable(f"has {len(value)} characters, at most {maximum_length} are allowed")
        if not value.isprintable():
            raise Unreadable(f"holds a character that cannot be printed: {shown(value)}")
        return value

    return convert


def name(rule: NameRule) -> Callable[[object], str]:
    """Reader of a name that must follow one of CMS's rules."""

    def convert(value: object) -> str:
        if not isinstance(value, str):
            raise Unreadable(f"must be text ({rule.what}), not {shown(value)}")
        if value.endswith(_PLACEHOLDER) and not rule.allows(value):
            raise Unreadable(f"{shown(value)} is a template's placeholder; give the {rule.what} ({rule.says})")
        if not rule.allows(value):
            raise Unreadable(f"{shown(value)} is not a legal {rule.what}: {rule.says}")
        return value

    return convert


def names(rule: NameRule) -> Callable[[object], tuple[str, ...]]:
    """Reader of a list of names, or of one text (also comma-separated); the order stays, repeated names count once."""
    read_one = name(rule)

    def convert(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list):
            raise Unreadable(f"must be a list of {rule.what}s, not {shown(value)}")
        found: dict[str, None] = {}
        wrong: dict[str, None] = {}
        for item in value:
            try:
                found[read_one(item)] = None
            except Unreadable as error:
                wrong[str(error)] = None
        if wrong:
            raise Unreadable("; ".join(list(wrong)[:_MAX_NAMED]) + ("; and more" if len(wrong) > _MAX_NAMED else ""))
        return tuple(found)

    return convert


def from_json(value: object, what: str) -> object:
    """What a JSON text says, where the field's value is one; ``what``: that it must be."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise Unreadable(f"must be {what}, not {shown(value)}") from error


def mapping(value: object) -> Mapping[str, object]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Unreadable(f"must be a map, not {shown(value)}")
    return value
