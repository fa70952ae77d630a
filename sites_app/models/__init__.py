"""Rows of sites_app. Owns sites, bans and schedds; knows nothing of requests or DAGs."""

from sites_app.models.schedd import Schedd, ScheddState
from sites_app.models.site import Site, SiteBan, SiteRse, SiteStatus

__all__ = ["Schedd", "ScheddState", "Site", "SiteBan", "SiteRse", "SiteStatus"]
