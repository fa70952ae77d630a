"""App config of sites_app: where work runs."""

from django.apps import AppConfig


class SitesAppConfig(AppConfig):
    """Sites, bans, schedds."""

    name = "sites_app"
    verbose_name = "Sites and schedds"
