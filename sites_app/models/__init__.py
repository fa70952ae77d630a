"""Rows of sites_app. Owns sites, bans, pools and schedds; knows nothing of requests or DAGs."""

from sites_app.models.health import BAD_HEALTH, Health, HealthChange, SystemicAlert
from sites_app.models.onboarding import Onboarding, OnboardingState, PoolSite
from sites_app.models.pool import Pool, PoolState
from sites_app.models.schedd import QueueChange, Schedd, ScheddState
from sites_app.models.site import Site, SiteBan, SiteRse, SiteStatus
