"""Rows of sites_app. Owns sites, bans and schedds; knows nothing of requests or DAGs."""

from sites_app.models.schedd import QueueChange, Schedd, ScheddState
from sites_app.models.site import Site, SiteBan, SiteRse, SiteStatus

__all__ = ["QueueChange", "Schedd", "ScheddState", "Site", "SiteBan", "SiteRse", "SiteStatus"]
