"""The Django app of the wiring: system checks, the operators' group, the audit."""

from __future__ import annotations

import os

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.admin.apps import AdminConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from wms2.runtime.circuits import use_circuits
from wms2.runtime.shared_counts import Broker, SharedCounts


class Wms2AdminConfig(AdminConfig):
    """Django's admin, with a site that opens by role."""

    default_site = "wms2.identities.admin_site.Wms2AdminSite"


class Wms2Config(AppConfig):
    """Registers the checks of ``wms2.checks``, makes the group ``operators``."""

    name = "wms2"
    label = "wms2"
    verbose_name = "WMS2"

    def ready(self) -> None:
        """Import for their registrations, once models can be imported."""
        from django.contrib import admin

        from wms2 import checks  # noqa: F401
        from wms2.api import rate_limits
        from wms2.celery import app
        from wms2.identities import actions as identities  # noqa: F401
        from wms2.identities import (
            break_glass,  # noqa: F401
            denials,
        )
        from wms2.identities.grants import operators_group_ensure
        from wms2.runtime import periodic
        from wms2.web import login_throttle
        from wms2.work import actions  # noqa: F401
        from wms2.work.resources import resources_ensure
        from wms2.work.workers import pools_ensure

        autodiscover_modules("actions")
        autodiscover_modules("tasks")
        app.conf.update(beat_schedule=periodic.beat_schedule(), task_routes=periodic.routes())
        admin.site.login_template = "login.html"
        admin.site.index_title = "Administration"
        admin.site.enable_nav_sidebar = False  # lists have many columns, and it repeats the index beside each of them
        use_circuits(SharedCounts(broker("circuit", "circuits are counted by this process alone")))
        login_throttle.attempts = SharedCounts(broker("sign-in", "failed sign-ins are counted by this process alone"))
        denials.counted = SharedCounts(broker("denied", "denials are counted by this process alone"))
        if rates := broker("rate", "rates are not limited"):
            rate_limits.use(rate_limits.RateLimits(rates))
        post_migrate.connect(operators_group_ensure, sender=apps.get_app_config("auth"), dispatch_uid="wms2.operators")
        post_migrate.connect(resources_ensure, sender=self, dispatch_uid="wms2.resources")
        post_migrate.connect(pools_ensure, sender=self, dispatch_uid="wms2.pools")


def broker(name: str, silent: str) -> Broker | None:
    """Through which the processes of this installation share counts of this name; None without one of Redis' protocol."""
    if not settings.CELERY_BROKER_URL.startswith("redis"):
        return None
    instance = os.environ.get("WMS2_INSTANCE", "")  # not by conf(): a command that needs no settings must start
    return Broker(settings.CELERY_BROKER_URL, f"wms2:{instance}:{name}", silent)
