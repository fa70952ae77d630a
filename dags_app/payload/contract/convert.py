"""JSON to frozen values and back, by the types of their fields. Owns the rules of both ways, and no document.

A field is a key of the object: ``str``, ``int``, ``float``, ``bool``, ``Any`` (as it was written), a dataclass or NamedTuple,
and ``Optional``, ``tuple[X, ...]`` and ``dict[str, X]`` of these. Absent or null is the field's default, or None where that is
allowed; else it is refused. ``Annotated[..., Json(...)]`` says what a type cannot. A class may have

- ``SCHEMA``, written first;
- ``left_out()``: the names of those fields that this value does not write;
- ``problem()``: what is wrong with a value whose fields have the right types, empty when nothing is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple, Optional, TypeVar, Union, get_args, get_origin, get_type_hints

from .reading import Value

_T = TypeVar("_T")
_NEEDED: Any = object()
_READERS: dict[Any, Callable[[Value], Any]] = {
    str: Value.text,
    int: Value.integer,
    float: Value.number,
    bool: Value.boolean,
    Any: lambda value: value.raw,
}


@dataclasses.dataclass(frozen=True)
class Json:
    """How a field or a type is written where that is not plain.

    ``key``, when it is not the field's name; what an ``absent`` one means; ``read`` and ``write`` from and to JSON.
    """

    key: str = ""
    absent: Any = _NEEDED
    read: Optional[Callable[[Value], Any]] = None
    write: Optional[Callable[[Any], Any]] = None


def one_of(*known: str) -> Json:
    """Text that is one of some words."""

    def read_word(value: Value) -> str:
        found = value.text()
        if found not in known:
            raise value.refuse(f"expected one of {', '.join(known)}, found {found!r}")
        return found

    return Json(read=read_word)


def read(value: Value, kind: type[_T], /, **given: Any) -> _T:
    """A ``kind`` out of an object; ``given`` are fields that are not in it. PayloadError names the field that is wrong."""
    fields = dict(given)
    for field in _fields_of(kind):
        if field.name not in given:
            item = value[field.key] if field.absent is _NEEDED else value.get(field.key)
            fields[field.name] = field.absent if item is None else field.read(item)
    found = kind(**fields)
    problem = found.problem() if hasattr(found, "problem") else ""
    if problem:
        raise value.refuse(problem)
    return found


def to_json(value: Any) -> dict[str, Any]:
    """The object that ``read`` reads, keys in the order of the fields."""
    document = {"schema": value.SCHEMA} if hasattr(value, "SCHEMA") else {}
    left_out = value.left_out() if hasattr(value, "left_out") else ()
    for field in _fields_of(type(value)):
        if field.name not in left_out:
            held = getattr(value, field.name)
            document[field.key] = held if field.write is None else field.write(held)
    return document


def some_of(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """These fields alone of the object, in the order given."""
    written = to_json(value)
    return {name: written[name] for name in names}


class _Field(NamedTuple):
    name: str
    key: str
    absent: Any
    read: Callable[[Value], Any]
    write: Optional[Callable[[Any], Any]]


_KNOWN: dict[type, tuple[_Field, ...]] = {}


def _fields_of(kind: type) -> tuple[_Field, ...]:
    if kind not in _KNOWN:
        if dataclasses.is_dataclass(kind):
            fields, missing = dataclasses.fields(kind), dataclasses.MISSING
            defaults = {each.name: _NEEDED if each.default is missing else each.default for each in fields}
            # one for all: nothing that was read is changed
            defaults |= {each.name: each.default_factory() for each in fields if each.default_factory is not missing}
        else:
            some = getattr(kind, "_field_defaults", {})
            defaults = {name: some.get(name, _NEEDED) for name in getattr(kind, "_fields", ())}
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = tuple(_field(name, hints[name], default) for name, default in defaults.items())
    return _KNOWN[kind]


def _field(name: str, hint: Any, default: Any) -> _Field:
    json = next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Json)), Json())
    absent = json.absent if json.absent is not _NEEDED else default
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if absent is _NEEDED and get_origin(plain) is Union and type(None) in get_args(plain):
        absent = None
    return _Field(name, json.key or name, absent, _reader(hint), _writer(hint))


def _reader(hint: Any) -> Callable[[Value], Any]:
    if hint in _READERS:
        return _READERS[hint]
    origin = get_origin(hint)
    if origin is None:
        return lambda value: read(value, hint)
    inner = _reader(get_args(hint)[1 if origin is dict else 0])
    if origin is Annotated:
        return next((mark.read for mark in hint.__metadata__ if isinstance(mark, Json) and mark.read), inner)
    if origin is tuple:
        return lambda value: tuple(inner(item) for item in value.items())
    if origin is dict:
        return lambda value: {name: inner(item) for name, item in value.entries()}
    return lambda value: None if value.raw is None else inner(value)


def _writer(hint: Any) -> Optional[Callable[[Any], Any]]:
    """None: the value is JSON already."""
    if hint in _READERS:
        return None
    origin = get_origin(hint)
    if origin is None:
        return to_json
    inner = _writer(get_args(hint)[1 if origin is dict else 0])
    if origin is Annotated:
        return next((mark.write for mark in hint.__metadata__ if isinstance(mark, Json) and mark.write), inner)
    if origin is tuple:
        return list if inner is None else lambda held: [inner(item) for item in held]
    if inner is None:
        return None
    if origin is dict:
        return lambda held: {name: inner(item) for name, item in held.items()}
    return lambda held: None if held is None else inner(held)
