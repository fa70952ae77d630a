"""``manage.py wms2_init``: claim the database for this instance, add the configured schedd, take sites from CRIC. Repeatable."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from requests_app.installation import installation_claim
from sites_app.services import schedd_ensure_configured, sites_sync
from wms2.errors import Wms2Error


class Command(BaseCommand):
    """First-time set-up of the rows that WMS2 needs before its first request."""

    help = "Claim the database, add the configured schedd, take the sites from CRIC. Repeatable."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the three steps."""
        try:
            installation = installation_claim()
            schedd = schedd_ensure_configured()
            sites, pairs = sites_sync()
        except Wms2Error as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"instance {installation.instance} ({installation.environment}); schedd {schedd.name} is {schedd.state}"
        )
        self.stdout.write(f"{sites} sites, {pairs} site-storage pairs from CRIC")
