"""Rows of WMS2 that belong to no app: the audit, wakes, kept numbers of rows."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin

from wms2.admin.filters import recent_values
from wms2.admin.readonly import ReadOnlyAdmin
from wms2.models import AuditEntry, RowCount, Wake


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """Who did what, and why; newest first."""

    list_display = ("at", "actor", "action", "target", "outcome", "reason")
    list_filter = (recent_values("action"), recent_values("outcome"), recent_values("actor"))
    exact_search: ClassVar = {"target": "a target's whole name (a request's, a limit's, a schedd's)", "actor": "an actor's"}


@admin.register(Wake)
class WakeAdmin(ReadOnlyAdmin):
    """Requests that have to be looked at; a row that stays says that nobody does."""

    list_display = ("at", "request_id", "why")
    exact_search: ClassVar = {"request_id": "a request's id"}


@admin.register(RowCount)
class RowCountAdmin(ReadOnlyAdmin):
    """Numbers of rows by kind, as the database keeps them: their sum counts."""

    list_display = ("counted", "kind", "number")
