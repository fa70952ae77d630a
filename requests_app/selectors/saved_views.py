"""Views of the list of requests that people keep."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, Q, QuerySet, Value, When

from requests_app.models import SavedView

#: Above the list; more are over REST.
MOST = 100


def views_seen(user: Any) -> QuerySet[SavedView]:
    """One's own and shared ones."""
    return SavedView.objects.filter(Q(owner=user.pk) | Q(shared=True)).select_related("owner")


def views_of(user: Any) -> list[SavedView]:
    """The first of these, one's own before those of others; one statement."""
    others = Case(When(owner=user.pk, then=Value(0)), default=Value(1))
    return list(views_seen(user).order_by(others, "name", "id")[:MOST])
