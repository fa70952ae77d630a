"""Views of the list of requests: kept, shared and removed by their owners; each time with its entry in the audit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django.http import QueryDict

from requests_app.models import SavedView
from requests_app.selectors.requests import ORDERINGS, requests_listed
from wms2.audit import audited
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
    before = SavedView.objects.filter(owner=owner, name=name).first()
    evidence: dict[str, Any] = {"query": query[:MAX_QUERY], "shared": shared}
    if before is not None:
        evidence["before"] = {"query": before.query, "shared": before.shared}
    with _audited(_action(before, shared), owner, name, **evidence):
        text = _text(query, filters)
        if SavedView.objects.filter(owner=owner).exclude(name=name).count() >= MOST_OF_ONE:
            raise FieldRefused("name", f"there are {MOST_OF_ONE} views of yours; remove one first")
        return SavedView.objects.update_or_create(owner=owner, name=name, defaults={"query": text, "shared": shared})[0]


def view_remove(*, view: SavedView) -> None:
    """Keep it no longer."""
    with _audited("saved_view_delete", view.owner, view.name, query=view.query, shared=view.shared):
        view.delete()


def _audited(action: str, owner: Any, name: str, **evidence: Any) -> AbstractContextManager[None]:
    return audited(actor=owner.get_username(), action=action, target=name, target_type="saved_view", reason="", **evidence)


def _action(before: SavedView | None, shared: bool) -> str:
    """What keeping it is: that others find it from now on, or no more, is said as that."""
    if before is None:
        return "saved_view_create"
    if before.shared == shared:
        return "saved_view_change"
    return "saved_view_share" if shared else "saved_view_unshare"


def _text(query: str, filters: Any) -> str:
    """The address without pages of the list. Raises FieldRefused: it is no address of the list."""
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
    text = kept.urlencode()
    if len(text) > MAX_QUERY:
        raise FieldRefused("query", f"is longer than {MAX_QUERY} characters")
    return text
