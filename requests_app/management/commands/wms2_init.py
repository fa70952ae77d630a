"""``manage.py wms2_init``: claim the database for this instance, add the configured schedd, load the shipped failure
rules, take sites from CRIC. Repeatable."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dags_app.failure_rules import failure_rules_load
from requests_app.installation import installation_claim
from sites_app.models import Site, SiteRse
from sites_app.sync import schedd_ensure_configured, sites_sync
from wms2.errors import RowsUnread, Wms2Error


class Command(BaseCommand):
    """First-time set-up of the rows that WMS2 needs before its first request."""

    help = "Claim the database, add the configured schedd, load failure rules, take the sites from CRIC. Repeatable."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the steps."""
        try:
            installation = installation_claim()
            schedd = schedd_ensure_configured()
            changed, kept = failure_rules_load()
            try:
                sites, pairs = sites_sync()
            except RowsUnread as error:
                self.stderr.write(str(error))
                sites, pairs = Site.objects.count(), SiteRse.objects.count()
        except Wms2Error as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"instance {installation.instance} ({installation.environment}); schedd {schedd.name} is {schedd.state}"
        )
        self.stdout.write(f"failure rules: {changed} new or changed, {kept} left as operators have changed them")
        self.stdout.write(f"{sites} sites, {pairs} site-storage pairs from CRIC")
