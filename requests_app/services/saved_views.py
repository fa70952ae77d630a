"""Views of the list of requests: kept and removed by their owners."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from requests_app.models import SavedView
from requests_app.selectors.requests import ORDERINGS, requests_listed
from wms2.errors import FieldRefused

#: Views of one owner.
MOST_OF_ONE = 100
MAX_QUERY = 2000


def view_save(*, owner: Any, name: str, query: str, shared: bool, filters: Any) -> SavedView:
    """Keep an address of the list under a name; the one of the same name is replaced.

    Args:
        query: the address behind its question mark; pages of the list are left out.
        filters: the list's filter set.

    Raises:
        FieldRefused: it is no address of the list, or there are too many.
    """
    given = QueryDict(query.removeprefix("?"))
    kept = QueryDict(mutable=True)
    for key in sorted(given.keys() - {"cursor", "page_size"}):
        if key not in filters.base_filters and key != "ordering":
            raise FieldRefused("query", f"{key[:100]} is no filter of the list of requests")
        kept[key] = given[key]
    if (asked := kept.get("ordering")) is not None and asked not in ORDERINGS:
        raise FieldRefused("query", f"ordering: must be one of: {', '.join(ORDERINGS)}")
    found = filters(kept, queryset=requests_listed().none())
    if not found.is_valid():
        raise FieldRefused("query", "; ".join(f"{key}: {' '.join(map(str, why))}" for key, why in found.form.errors.items()))
    if SavedView.objects.filter(owner=owner).exclude(name=name).count() >= MOST_OF_ONE:
        raise FieldRefused("name", f"there are {MOST_OF_ONE} views of yours; remove one first")
    text = kept.urlencode()
    if len(text) > MAX_QUERY:
        raise FieldRefused("query", f"is longer than {MAX_QUERY} characters")
    return SavedView.objects.update_or_create(owner=owner, name=name, defaults={"query": text, "shared": shared})[0]


def view_remove(*, view: SavedView) -> None:
    """Keep it no longer."""
    view.delete()
