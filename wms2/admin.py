"""What every admin page of WMS2 shares: rows are looked at, not edited; the life cycle and the services write them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest


class ReadOnlyAdmin(admin.ModelAdmin):
    """No adding, no deleting, every field read-only; actions call services. Lists do not count big tables."""

    show_full_result_count = False
    list_per_page = 50

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """All of them."""
        return [field.name for field in self.opts.fields]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows come from services."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows are never deleted by hand."""
        return False
