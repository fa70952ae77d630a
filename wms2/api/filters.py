"""Kinds of filters that the apps' filter sets are made of. Each says in the schema exactly what it takes (``set_override``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

import django_filters
from django import forms
from django.db import connection, transaction
from django.db.models import Model, Q, QuerySet
from django_filters.fields import BaseCSVField, IsoDateTimeField
from drf_spectacular.drainage import set_override


class WholeNumberFilter(django_filters.Filter):
    """A whole number within bounds."""

    field_class = forms.IntegerField

    def __init__(self, *, least: int, most: int, **kwargs: Any) -> None:
        super().__init__(min_value=least, max_value=most, **kwargs)
        set_override(self, "field", {"type": "integer", "minimum": least, "maximum": most})


class TextFilter(django_filters.CharFilter):
    """The exact text."""

    def __init__(self, *, max_length: int, **kwargs: Any) -> None:
        super().__init__(max_length=max_length, **kwargs)
        set_override(self, "field", {"type": "string", "minLength": 1, "maxLength": max_length})


class SearchFilter(TextFilter):
    """Part of any of ``fields``, in upper or lower case."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields
        words = ", ".join(name.rsplit("__", 1)[-1] for name in fields)
        super().__init__(max_length=200, help_text=f"part of {words}")

    def filter(self, qs: QuerySet[Model], value: str) -> QuerySet[Model]:
        """Rows with it in one of the fields."""
        if not value:
            return qs
        return qs.filter(Q(*((f"{name}__icontains", value) for name in self.fields), _connector=Q.OR))


class UpperSearchFilter(TextFilter):
    """Part of a column that holds several fields in upper case, which an index includes beside the key.

    Where few rows have it, the index alone finds them, be it that one or one of trigrams; with more of them the list's own
    order soon brings a page together.
    """

    few = 500

    def __init__(self, column: str, words: str) -> None:
        super().__init__(max_length=200, field_name=column, lookup_expr="contains", help_text=f"part of {words}")

    def filter(self, qs: QuerySet[Model], value: str) -> QuerySet[Model]:
        """Rows with it, in upper or lower case."""
        if not value:
            return qs
        having = Q(**{f"{self.field_name}__contains": value.upper()})
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")  # an index that rows have changed in seems larger than their table
            keys = list(qs.model._default_manager.filter(having).order_by().values_list("pk", flat=True)[: self.few + 1])
        return qs.filter(pk__in=keys) if len(keys) <= self.few else qs.filter(having)


class TrueFalseFilter(django_filters.Filter):
    """``true`` or ``false``; anything else is an error, where django-filter's own would ignore it."""

    field_class = forms.TypedChoiceField

    def __init__(self, **kwargs: Any) -> None:
        words = [("true", "true"), ("false", "false")]
        super().__init__(choices=words, coerce=lambda word: word == "true", empty_value=None, **kwargs)
        set_override(self, "field", {"type": "boolean"})


def whether(holds: Q) -> Callable[[QuerySet[Any], str, bool], QuerySet[Any]]:
    """The method of a ``TrueFalseFilter``: rows of which this holds, or the others."""
    return lambda rows, name, wanted: rows.filter(holds) if wanted else rows.exclude(holds)


class WholeListField(BaseCSVField):
    """Values separated by commas, none of them empty."""

    def clean(self, value: Any) -> Any:
        """The values. Raises ValidationError: one is missing or wrong."""
        if value is not None and "" in value:
            raise forms.ValidationError("a value is missing beside a comma")
        return super().clean(value)


class ChoicesFilter(django_filters.BaseInFilter, django_filters.ChoiceFilter):
    """One of the choices, or several separated by commas: ``?status=held,active``."""

    base_field_class = WholeListField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("help_text", "one, or several separated by commas")
        words = ", ".join(str(value) for value, _ in kwargs["choices"])
        kwargs.setdefault("error_messages", {"invalid_choice": f"'%(value)s' is not one of {words}"})
        super().__init__(*args, **kwargs)


class MomentField(IsoDateTimeField):
    """ISO 8601, in UTC from here on: PostgreSQL takes offsets of less than 16 hours only, ISO 8601 of 24."""

    default_error_messages: ClassVar = {"invalid": "not a moment; give it as ISO 8601 has it, e.g. 2026-11-25T12:00:00Z"}

    def to_python(self, value: Any) -> datetime | None:
        """The moment. Raises ValidationError: it is not one, or lies outside the calendar."""
        moment = super().to_python(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except (OverflowError, ValueError) as error:
            raise forms.ValidationError("is outside the calendar") from error


class MomentFilter(django_filters.IsoDateTimeFilter):
    """A moment."""

    field_class = MomentField


def since(name: str) -> django_filters.Filter:
    """Not before a moment."""
    return MomentFilter(field_name=name, lookup_expr="gte", help_text="from this moment on, ISO 8601")


def until(name: str) -> django_filters.Filter:
    """Before a moment."""
    return MomentFilter(field_name=name, lookup_expr="lt", help_text="before this moment, ISO 8601")
