"""Addresses of pages that may not be there, and of what other services show of the same thing."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from django.apps import apps
from django.contrib.admin.utils import unquote
from django.urls import NoReverseMatch, reverse

#: What stands below an address, by its first parts.
_BELOW = {
    "requests": "request", "groups": "group", "campaigns": "campaign", "sites": "site", "dags": "DAG", "cases": "case",
    "outputs/blocks": "block", "outputs/datasets": "dataset", "operations/schedds": "schedd",
}  # fmt: skip


class AddressTarget(NamedTuple):
    """What a wrong address was of; without ``kind`` nothing is known of it."""

    kind: str = ""
    name: str = ""
    why: str = ""


def sought(path: str, why: str = "") -> AddressTarget:
    """What an address names: a request, a site, a row of a table of the admin.

    Args:
        path: already decoded.
        why: what the page says of it, if it says anything.
    """
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["admin"] and len(parts) > 3 and parts[3] != "verb":
        try:
            return AddressTarget(str(apps.get_model(parts[1], parts[2])._meta.verbose_name), unquote(parts[3]), why)
        except LookupError:
            return AddressTarget(why=why)
    for length in (2, 1):
        kind = _BELOW.get("/".join(parts[:length]))
        if kind and len(parts) > length:
            return AddressTarget(kind, parts[length][:200], why)
    return AddressTarget(why=why)


def address(name: str, /, *args: Any, **query: str) -> str:
    """Of a page by its name; empty where this installation has no such page, or none for a thing of that name."""
    try:
        found = reverse(name, args=args)
    except NoReverseMatch:
        return ""
    return f"{found}?{urlencode(query)}" if query else found


def filled(template: str, value: str) -> str:
    """A setting's address with ``{}`` replaced by a value; empty when either is."""
    return template.replace("{}", quote(value, safe="")) if template and value else ""
