"""How values look in the admin: statuses with their colour, links to rows, ages, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from django.contrib import admin
from django.db.models import Field, Model
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from wms2.tones import tone
from wms2.words import ago, duration

EMPTY = "–"


def badge(value: str, label: str) -> SafeString:
    """A status in its colour; the word is always there."""
    return format_html('<span class="badge tone-{}">{}</span>', tone(value), label)


def admin_url(row: Model, what: str = "change") -> str:
    """Address of a row's page in the admin."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{what}", args=[row.pk])


def list_url(model: type[Model], query: str = "") -> str:
    """Address of a model's list in the admin, with filters."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{url}?{query}" if query else url


def link(row: Model | None, text: Any = None) -> str | SafeString:
    """A link to a row's page."""
    return EMPTY if row is None else format_html('<a href="{}">{}</a>', admin_url(row), row if text is None else text)


def badge_column(field: str, label: str = "", since: str = "") -> Callable[[Any], SafeString]:
    """A list's column: a choice field as a badge; with ``since``, how long it has been so."""

    @admin.display(description=label or field.replace("_", " "), ordering=field)
    def column(row: Any) -> SafeString:
        value = getattr(row, field)
        shown = badge(value, getattr(row, f"get_{field}_display")()) if value else EMPTY
        moment = getattr(row, since) if since else None
        if moment is None:
            return format_html("{}", shown)
        exact, lasting = f"since {moment:%Y-%m-%d %H:%M:%S} UTC", duration((timezone.now() - moment).total_seconds())
        return format_html('{} <span class="age" title="{}">{}</span>', shown, exact, lasting)

    column.__name__ = f"{field}_badge"
    return column


def since_column(field: str, label: str) -> Callable[[Any], str | SafeString]:
    """A list's column: how long ago a moment was, the moment itself as a tooltip."""

    @admin.display(description=label, ordering=field)
    def column(row: Any) -> str | SafeString:
        moment = getattr(row, field)
        return format_html('<span title="{}">{}</span>', f"{moment:%Y-%m-%d %H:%M:%S} UTC", ago(moment)) if moment else EMPTY

    column.__name__ = f"{field}_ago"
    return column


def link_column(relation: str, label: str = "") -> Callable[[Any], str | SafeString]:
    """A list's column: a link to the row that a foreign key leads to; it tells the list by ``relation`` to read that too."""

    @admin.display(description=label or relation.replace("_", " "))
    def column(row: Any) -> str | SafeString:
        return link(getattr(row, relation))

    column.__name__ = f"{relation}_link"
    column.relation = relation  # type: ignore[attr-defined]
    return column


def json_shown(value: Any) -> SafeString:
    """Indented."""
    return format_html('<pre class="json">{}</pre>', json.dumps(value, indent=2, ensure_ascii=False, default=str))


@cache
def json_field(field: Field[Any, Any]) -> Callable[[Any], SafeString]:
    """A row's page: a JSON column, indented."""

    @admin.display(description=str(field.verbose_name))
    def shown(row: Any) -> SafeString:
        return json_shown(getattr(row, field.name))

    shown.__name__ = f"{field.name}_json"
    return shown
