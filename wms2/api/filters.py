"""Kinds of filters that the apps' filter sets are made of."""

from __future__ import annotations

from typing import Any

import django_filters
from django import forms
from django.db.models import Model, Q, QuerySet


class IntegerFilter(django_filters.Filter):
    """A whole number within bounds."""

    field_class = forms.IntegerField


class ChoicesFilter(django_filters.BaseInFilter, django_filters.ChoiceFilter):
    """One of the choices, or several separated by commas: ``?status=held,active``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("help_text", "one, or several separated by commas")
        super().__init__(*args, **kwargs)


class SearchFilter(django_filters.CharFilter):
    """Part of any of ``fields``, whatever the case."""

    def __init__(self, fields: tuple[str, ...], **kwargs: Any) -> None:
        self.fields = fields
        kwargs.setdefault("max_length", 200)
        kwargs.setdefault("help_text", f"part of {', '.join(name.rsplit('__', 1)[-1] for name in fields)}")
        super().__init__(**kwargs)

    def filter(self, qs: QuerySet[Model], value: str) -> QuerySet[Model]:
        """Rows with it in one of the fields."""
        if not value:
            return qs
        found = Q()
        for name in self.fields:
            found |= Q(**{f"{name}__icontains": value})
        return qs.filter(found)


def since(name: str) -> django_filters.Filter:
    """Not before a moment, ISO 8601."""
    return django_filters.IsoDateTimeFilter(field_name=name, lookup_expr="gte", help_text="from this moment on, ISO 8601")


def until(name: str) -> django_filters.Filter:
    """Before a moment, ISO 8601."""
    return django_filters.IsoDateTimeFilter(field_name=name, lookup_expr="lt", help_text="before this moment, ISO 8601")
