"""Serializers of answers, made from the types of what is shown: a dataclass, a named tuple, a typed dict or a model.

A field is given as ``path``, or as ``name=path`` where the JSON has another name. A path may lead through rows
(``schedd.drain_since``); with a ``?`` at its end the value is null where the row is missing. Keywords give the help text of a
field, or a whole field in place of the one that its type implies.
"""

from __future__ import annotations

import types
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from django.db import models
from drf_spectacular.drainage import set_override
from rest_framework import serializers

#: A text that is an address.
Url = Annotated[str, serializers.URLField]
_PLAIN: tuple[tuple[type, type[serializers.Field]], ...] = (
    (bool, serializers.BooleanField),
    (int, serializers.IntegerField),
    (float, serializers.FloatField),
    (str, serializers.CharField),
    (datetime, serializers.DateTimeField),
    (uuid.UUID, serializers.UUIDField),
)
_COLUMNS: tuple[tuple[Any, Any], ...] = (
    (models.BooleanField, bool),
    (models.IntegerField, int),
    (models.FloatField, float),
    (models.DateTimeField, datetime),
    (models.UUIDField, uuid.UUID),
    ((models.CharField, models.TextField), str),
)
_NONE: Mapping[str, Any] = MappingProxyType({})
#: Types whose serializer is declared; fields of these types are nested.
_declared: dict[Any, type[serializers.Serializer]] = {}


class Computed(serializers.Field):
    """A value computed from the row.

    Args:
        compute: the value, ready for JSON.
        like: a field that describes it for OpenAPI; None: text.
        column: what a list reads for it, for ``compute`` of its view.
    """

    def __init__(self, compute: Callable[[Any], Any], like: Any = None, *, column: str = "", **kwargs: Any) -> None:
        super().__init__(source="*", read_only=True, **kwargs)
        self.compute, self.column = compute, column
        set_override(self, "field", serializers.CharField() if like is None else like)

    def to_representation(self, value: Any) -> Any:
        """Of the row."""
        return self.compute(value)


def answer(name: str, kind: Any, does: str, /, *paths: str, columns: Mapping[str, Any] = _NONE, **said: Any) -> Any:
    """A serializer of these fields of ``kind``, by default of all that a dataclass has. Columns are shown without their bounds.

    Args:
        name: of the component in the schema.
        kind: a class, or for a dict a mapping of names to types.
        does: the description in the schema.
        paths: the fields in their order, as the module describes.
        columns: attribute -> serializer, all of whose fields come first.
        said: help texts and fields by name; those without a path come last.
    """
    fields: dict[str, Any] = {}
    for source, serializer in columns.items():
        for key, column in serializer(read_only=True).get_fields().items():
            options = {**column._kwargs, "source": f"{source}.{column.source or key}"}
            fields[key] = type(column)(*column._args, **options)  # fields are copied by what they were made from
    for path in paths or _hints(kind):
        key, path = _split(path)
        fields[key] = _given(said.pop(key, ""), kind, key, path)
    fields |= said
    made = type(f"{name}Serializer", (serializers.Serializer,), {"__doc__": does})
    made._declared_fields = fields  # type: ignore[attr-defined]  # in this order, not that of their making
    if isinstance(kind, type) and not issubclass(kind, models.Model):
        _declared[kind] = made
    return made


def rows(
    name: str,
    model: type[models.Model],
    does: str,
    /,
    *paths: str,
    computed_from: Mapping[str, str] = _NONE,
    base: type[serializers.ModelSerializer] = serializers.ModelSerializer,
    **said: Any,
) -> Any:
    """A serializer of a model's rows; columns under their own names as the model has them, with bounds and choices.

    ``computed_from``: columns that a list reads for fields that its view computes.
    """
    fields, helps, order = {}, {}, []
    for path in paths:
        key, _, other = path.partition("=")
        more = said.pop(key, "")
        order.append(key)
        if other or not isinstance(more, str):
            fields[key] = _given(more, model, key, other)
        elif more:
            helps[key] = {"help_text": more}
    meta = type("Meta", (), {"model": model, "fields": (*order, *said), "extra_kwargs": helps})
    members = {**fields, **said, "Meta": meta, "computed_from": computed_from, "__doc__": does}
    return type(f"{name}Serializer", (base,), members)


def _split(path: str) -> tuple[str, str]:
    key, _, other = path.partition("=")
    return (key, other) if other else (key.rstrip("?").rpartition(".")[2], key)


def _given(more: Any, kind: Any, key: str, path: str) -> Any:
    if not isinstance(more, str):
        return more
    source = path.rstrip("?")
    options: dict[str, Any] = {"source": source} if source != key else {}
    if path.endswith("?"):
        options |= {"default": None, "allow_null": True}
    hint = kind
    for part in source.split("."):
        hint = _hint(_without_null(hint), part)
    return field_of(hint, **options, **({"help_text": more} if more else {}))


def field_of(hint: Any, **options: Any) -> Any:
    """The field for values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return arguments[1](**options)
    if type(None) in arguments:
        return field_of(_without_null(hint), **{**options, "allow_null": True})
    if hint in _declared:
        return _declared[hint](**options)
    kind = origin or hint
    if not isinstance(kind, type) or kind in (Any, object):
        return serializers.JSONField(**options)
    for plain, made in _PLAIN:
        if issubclass(kind, plain):
            return made(**options)
    child = arguments[-1] if issubclass(kind, Mapping) and arguments else arguments[0] if arguments else Any
    if issubclass(kind, Mapping):
        return serializers.DictField(**options) if child is Any else serializers.DictField(child=field_of(child), **options)
    if not issubclass(kind, Iterable) or hasattr(kind, "_fields"):
        raise TypeError(f"{kind.__name__} has no serializer; declare it with answer() first")
    if child in _declared:
        return _declared[child](many=True, **options)
    return serializers.ListField(**options) if child is Any else serializers.ListField(child=field_of(child), **options)


def _hints(kind: Any) -> Mapping[str, Any]:
    return kind if isinstance(kind, Mapping) else get_type_hints(kind, include_extras=True)


def _hint(kind: Any, name: str) -> Any:
    """The type of an attribute: of a column, a dataclass' field, or what a property or method returns."""
    if isinstance(kind, Mapping):
        return kind[name]
    if get_args(kind):  # a mapping by names
        return get_args(kind)[-1]
    found = getattr(kind, name, None)
    if issubclass(kind, models.Model) and (name == "pk" or not (isinstance(found, property) or callable(found))):
        return _column(kind._meta.pk if name == "pk" else kind._meta.get_field(name), name)
    function = found.fget if isinstance(found, property) else found
    return get_type_hints(function)["return"] if callable(function) else _hints(kind)[name]


def _column(column: Any, name: str) -> Any:
    if column.is_relation:
        if name == column.name:
            return column.related_model
        hint = _column(column.target_field, "")
    elif isinstance(column, models.JSONField):
        return {dict: dict[str, Any], list: list[Any]}.get(column.default, Any)
    else:
        hint = next(hint for kind, hint in _COLUMNS if isinstance(column, kind))
    return hint | None if column.null else hint


def _without_null(hint: Any) -> Any:
    if type(None) not in get_args(hint):
        return hint
    left = [each for each in get_args(hint) if each is not types.NoneType]
    return left[0] if len(left) == 1 else Any
