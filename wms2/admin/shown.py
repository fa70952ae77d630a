"""How values look in the admin: statuses with their colour, links to rows, ages, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import display_for_field
from django.db.models import Field, Model, UUIDField
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from wms2.web.colours import colour
from wms2.web.formatting import ago, duration, exact, spelled
from wms2.web.formatting import moment as shown_moment

EMPTY = "–"
_UUID = re.compile(r"\b([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def aged(moment: datetime) -> SafeString:
    """How long ago a moment was; the moment itself as a tooltip."""
    return shown_moment(moment, ago(moment), exact(moment))


def badge(value: str, label: str) -> SafeString:
    """A status in its colour; the word is always there."""
    return format_html('<span class="badge colour-{}">{}</span>', colour(value), label)


def admin_url(row: Model) -> str:
    """Address of a row's page in the admin."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def list_url(model: type[Model], query: str = "") -> str:
    """Address of a model's list in the admin, with filters."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{url}?{query}" if query else url


def link(row: Model | None, text: Any = None) -> str | SafeString:
    """A link to a row's page."""
    return EMPTY if row is None else format_html('<a href="{}">{}</a>', admin_url(row), row if text is None else text)


@dataclass(frozen=True)
class UserColumn:
    """A column that offers each user what they may do: of a list, or first on a row's page. Two of the same user are equal, since
    Django looks for a page's columns among those that it was given before."""

    says: Callable[[Any, Any], Any]
    short_description: str
    user: Any = None

    def __call__(self, row: Any) -> Any:
        """What it says of a row to the user."""
        return self.says(row, self.user)

    @property
    def __name__(self) -> str:
        """By which Django names the column's cells."""
        return str(self.says.__name__)


def of_user(column: Any, user: Any) -> Any:
    """A column as this user is to see it."""
    return replace(column, user=user) if isinstance(column, UserColumn) else column


def _column(name: str, says: Any, description: str, ordering: str | None = None) -> Callable[[Any], Any]:
    """What a list or a row's page says of a row, under the name by which Django names its cells and finds a field's help."""
    says.__name__ = name
    column: Callable[[Any], Any] = admin.display(description=description, ordering=ordering)(says)
    return column


def badge_column(field: str, since: str = "") -> Callable[[Any], SafeString]:
    """A list's column: a choice field as a badge; with ``since``, how long it has been so."""

    def column(row: Any) -> SafeString:
        value = getattr(row, field)
        shown = badge(value, getattr(row, f"get_{field}_display")()) if value else EMPTY
        moment = getattr(row, since) if since else None
        if moment is None:
            return format_html("{}", shown)
        lasting = duration((timezone.now() - moment).total_seconds())
        return format_html('{} <span class="age">{}</span>', shown, shown_moment(moment, lasting, f"since {exact(moment)}"))

    return _column(f"{field}_badge", column, spelled(field), field)


def since_column(field: str, label: str) -> Callable[[Any], str | SafeString]:
    """A list's column: how long ago a moment was, the moment itself as a tooltip."""

    def column(row: Any) -> str | SafeString:
        moment = getattr(row, field)
        return aged(moment) if moment else EMPTY

    return _column(f"{field}_ago", column, label, field)


def link_column(relation: str, label: str = "") -> Callable[[Any], str | SafeString]:
    """A list's column: a link to the row that a foreign key leads to; it tells the list by ``relation`` to read that too."""

    def column(row: Any) -> str | SafeString:
        other = getattr(row, relation)
        return link(other, None if other is None else short(other))

    column.relation = relation  # type: ignore[attr-defined]
    return _column(f"{relation}_link", column, label or spelled(relation))


def plain_column(field: Field[Any, Any]) -> Callable[[Any], Any]:
    """A list's column as it stands, under a name that people write; of an unreadable id its beginning."""

    def column(row: Any) -> Any:
        value = getattr(row, field.name)
        if isinstance(field, UUIDField) and value is not None:
            return short(value)
        return display_for_field(value, field, EMPTY)

    return _column(field.name, column, spelled(str(field.verbose_name)), field.name)


def said_column(name: str, label: str, says: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A column beside those of the table: ``says`` tells what it says of a row."""
    return _column(name, says, label)


def worded(field: Field[Any, Any], words: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A column, of a list or a row's page, of which ``words`` tells what it says of a row."""

    def shown(row: Any) -> Any:
        return words(row)

    return _column(field.name, shown, spelled(str(field.verbose_name)), field.name)


def short(value: Any) -> Any:
    """A text with its ids cut down to their first characters; the whole of it is its title."""
    whole = str(value)
    short = _UUID.sub(r"\1", whole)
    return whole if short == whole else format_html('<span title="{}">{}</span>', whole, short)


def json_shown(value: Any) -> SafeString:
    """Indented."""
    return format_html('<pre class="json" tabindex="0">{}</pre>', json.dumps(value, indent=2, ensure_ascii=False, default=str))


@cache
def json_field(field: Field[Any, Any]) -> Callable[[Any], SafeString]:
    """A row's page: a JSON column, indented."""
    return _column(f"{field.name}_json", lambda row: json_shown(getattr(row, field.name)), spelled(str(field.verbose_name)))
