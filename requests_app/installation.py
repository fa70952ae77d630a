"""Whose database this is, whether its tables are this release's, and by whose clock (docs/design/control.md, Instance isolation).

Each process asks before it acts.
"""

from __future__ import annotations

import time
from functools import cache

import structlog
from django.db import DatabaseError, connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from requests_app.models import Installation
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.runtime import clock

#: A process whose host's clock differs more from the database's does not start.
MAX_CLOCK_SKEW_SECONDS = 30.0

log = structlog.get_logger(__name__)
#: Between two looks at a database that does not answer yet.
_PAUSE_SECONDS = 5.0
#: A difference that clocks kept by NTP never have.
_LOGGED_SECONDS = 2.0


class ForeignDatabase(ConfigurationError):
    """The database belongs to another instance or environment."""


class TablesOlder(ConfigurationError):
    """Migrations of this release are still to come."""


def installation_claim() -> Installation:
    """Write our instance id and environment into an empty database, or verify what is there."""
    settings = conf()
    row, _ = Installation.objects.get_or_create(
        id=1, defaults={"instance": settings.instance, "environment": settings.environment}
    )
    installation_verify()
    return row


def installation_verify() -> None:
    """Raises:
    ForeignDatabase: the database belongs to another instance or environment.
    ConfigurationError: it was never initialised.
    """
    settings, row = conf(), Installation.objects.first()
    if row is None:
        raise ConfigurationError("this database belongs to no instance yet; run: manage.py wms2_init")
    if (row.instance, row.environment) != (settings.instance, settings.environment):
        raise ForeignDatabase(
            f"this database belongs to instance {row.instance} ({row.environment}), "
            f"this process is {settings.instance} ({settings.environment})"
        )


def tables_verify() -> None:
    """Newer tables are fine, those of the next release: a release only adds what the one before it can leave alone (ADR 0028).

    Raises:
        TablesOlder: this release reads what is not there yet.
    """
    applied = MigrationRecorder(connection).applied_migrations().keys()
    newest, folded = _newest_migrations()
    if lacking := newest - applied:
        names = ", ".join(sorted(f"{app} {name}" for app, name in lacking))
        older = f"the database's tables are older than this release (without {names})"
        if in_part := [replaced - applied for replaced in folded if replaced & applied and replaced - applied]:
            app, name = max(in_part[0])
            raise TablesOlder(
                f"{older}, and this release begins after {app} {name}: run manage.py migrate of the release that has it"
            )
        raise TablesOlder(f"{older}; run: manage.py migrate")


@cache
def _newest_migrations() -> tuple[frozenset[tuple[str, str]], tuple[frozenset[tuple[str, str]], ...]]:
    """Of each app, as this release has them; and for each of its first ones those that it replaces."""
    loader = MigrationLoader(None)
    folded = (frozenset(each.replaces) for each in loader.disk_migrations.values() if each.replaces)
    return frozenset(loader.graph.leaf_nodes()), tuple(folded)


def clock_verify() -> None:
    """Log a host's clock that is not the database's.

    Raises:
        ConfigurationError: it differs by more than ``MAX_CLOCK_SKEW_SECONDS``.
    """
    skew, most = clock.skew_seconds(), MAX_CLOCK_SKEW_SECONDS
    if abs(skew) > most:
        raise ConfigurationError(
            f"this host's clock is {skew:+.1f} s off the database's, more than {most:g} s: set it (NTP), then start again"
        )
    if abs(skew) > _LOGGED_SECONDS:
        log.warning("this host's clock is not the database's", skew_seconds=round(skew, 1))


def process_begin() -> None:
    """Before a process acts: this is our database, with our tables, and nearly our clock. Waits for a database that does not
    answer yet or is yet to be migrated: to act unchecked would be worse.

    Raises:
        ConfigurationError: not to be started like this; says why.
    """
    while True:
        try:
            installation_verify()
            tables_verify()
            clock_verify()
        except (DatabaseError, TablesOlder) as error:
            what = "is yet to be migrated" if isinstance(error, TablesOlder) else "does not answer"
            log.warning(f"the database {what}, waiting for it", error=str(error).partition("\n")[0])
            connections.close_all()
            time.sleep(_PAUSE_SECONDS)
        else:
            return
