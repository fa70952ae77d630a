"""Reads of sites_app."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import Prefetch, QuerySet

from sites_app.bans import bans_active
from sites_app.models import Pool, PoolState, Site, SiteRse
from wms2.errors import FieldRefused


def sites_by_rse() -> dict[str, tuple[str, ...]]:
    """RSE -> the sites that read it (CRIC's many-to-many mapping)."""
    pairs = SiteRse.objects.order_by("rse", "site_id").values_list("rse", "site_id")
    return {rse: tuple(site for _, site in some) for rse, some in groupby(pairs, itemgetter(0))}


def known_site_names() -> frozenset[str]:
    """Every site of CRIC's last sync, in any status."""
    return frozenset(Site.objects.values_list("name", flat=True))


def sites_named(names: Sequence[str], field: str) -> list[Site]:
    """The sites of these names, each once; the one place where the doors' sites are looked up.

    Raises:
        FieldRefused: CRIC has no such site.
    """
    rows = {row.name: row for row in Site.objects.filter(name__in=names)}
    if unknown := [name for name in names if name not in rows]:
        raise FieldRefused(field, f"{unknown[0]} is not a site of CRIC")
    return [rows[name] for name in dict.fromkeys(names)]


def candidate_sites(workflow: Any) -> frozenset[str]:
    """Sites that a workflow's jobs may run at by its own lists; every known one when it names none."""
    spec = workflow.spec
    named = frozenset(spec.get("site_whitelist") or ()) or known_site_names()
    return named - frozenset(spec.get("site_blacklist") or ())


def sites_shown() -> QuerySet[Site]:
    """Sites with their storage and the bans in force."""
    active = bans_active().order_by("expires_at")
    rses = SiteRse.objects.order_by("rse")
    return Site.objects.prefetch_related(Prefetch("rses", rses), Prefetch("bans", active, to_attr="active_bans"))


def rses_of(sites: Collection[str]) -> Mapping[str, list[str]]:
    """Site -> its storage, one query for all."""
    found: dict[str, list[str]] = defaultdict(list)
    for site, rse in SiteRse.objects.filter(site__in=sites).order_by("rse").values_list("site_id", "rse"):
        found[site].append(rse)
    return found


def token_dirs() -> list[str]:
    """Where pools that are in use have tokens of their own."""
    return list(Pool.objects.filter(state=PoolState.ENABLED).exclude(token_dir="").values_list("token_dir", flat=True))
