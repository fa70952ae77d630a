"""Views of the list of requests that people keep."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from requests_app.models import SavedView


def views_seen(user: Any) -> QuerySet[SavedView]:
    """One's own and shared ones."""
    return SavedView.objects.filter(Q(owner=user.pk) | Q(shared=True)).select_related("owner")
