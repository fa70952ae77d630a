"""Views of the list of requests that people keep."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from requests_app.models import SavedView

#: Above the list; more are over REST.
MOST = 100


def views_seen(user: Any) -> QuerySet[SavedView]:
    """One's own and shared ones."""
    return SavedView.objects.filter(Q(owner=user.pk) | Q(shared=True)).select_related("owner")


def views_of(user: Any) -> list[SavedView]:
    """The first of these; one statement."""
    return list(views_seen(user)[:MOST])
