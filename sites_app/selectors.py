"""Reads of sites_app."""

from __future__ import annotations

from collections import defaultdict

from django.db.models import Prefetch, Q, QuerySet
from django.utils import timezone

from sites_app.models import Site, SiteBan, SiteRse


def sites_by_rse() -> dict[str, tuple[str, ...]]:
    """RSE -> the sites that read it (CRIC's many-to-many mapping)."""
    found: dict[str, list[str]] = defaultdict(list)
    for rse, site in SiteRse.objects.order_by("rse", "site_id").values_list("rse", "site_id"):
        found[rse].append(site)
    return {rse: tuple(sites) for rse, sites in found.items()}


def known_site_names() -> frozenset[str]:
    """Every site of CRIC's last sync, whatever its status."""
    return frozenset(Site.objects.values_list("name", flat=True))


def banned_sites(workflow_id: object) -> frozenset[str]:
    """Sites with an active ban for this workflow or for all."""
    active = SiteBan.objects.filter(removed_at__isnull=True, expires_at__gt=timezone.now())
    return frozenset(active.filter(Q(workflow__isnull=True) | Q(workflow_id=workflow_id)).values_list("site_id", flat=True))


def sites_shown() -> QuerySet[Site]:
    """Sites with their storage and the bans in force."""
    active = SiteBan.objects.filter(removed_at__isnull=True, expires_at__gt=timezone.now()).order_by("expires_at")
    rses = SiteRse.objects.order_by("rse")
    return Site.objects.prefetch_related(Prefetch("rses", rses), Prefetch("bans", active, to_attr="active_bans"))
