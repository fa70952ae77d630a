"""Whose database this is, and by whose clock (docs/design/control.md, Instance isolation). Each process asks before it acts."""

from __future__ import annotations

import time

import structlog
from django.db import DatabaseError, connections

from requests_app.models import Installation
from wms2 import clock
from wms2.conf import conf
from wms2.errors import ConfigurationError

log = structlog.get_logger(__name__)
#: Between two looks at a database that does not answer yet.
_PAUSE_SECONDS = 5.0
#: A difference that clocks kept by NTP never have.
_TOLD_SECONDS = 2.0


class ForeignDatabase(ConfigurationError):
    """The database belongs to another instance or environment."""


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
    ConfigurationError: it belongs to nobody yet.
    """
    settings, row = conf(), Installation.objects.first()
    if row is None:
        raise ConfigurationError("this database belongs to nobody yet; run: manage.py wms2_init")
    if (row.instance, row.environment) != (settings.instance, settings.environment):
        raise ForeignDatabase(
            f"this database belongs to instance {row.instance} ({row.environment}), "
            f"this process is {settings.instance} ({settings.environment})"
        )


def clock_verify() -> None:
    """Tell of a host's clock that is not the database's.

    Raises:
        ConfigurationError: it differs by more than ``max_clock_skew_seconds``.
    """
    skew, most = clock.skew_seconds(), conf().max_clock_skew_seconds
    if abs(skew) > most:
        raise ConfigurationError(
            f"this host's clock is {skew:+.1f} s off the database's, more than {most:g} s: set it (NTP), then start again"
        )
    if abs(skew) > _TOLD_SECONDS:
        log.warning("this host's clock is not the database's", skew_seconds=round(skew, 1))


def process_begin() -> None:
    """Before a process acts: this is our database, and nearly our clock. Waits for a database that does not answer yet: to act
    unchecked would be worse.

    Raises:
        ConfigurationError: not to be started like this; says why.
    """
    while True:
        try:
            installation_verify()
            clock_verify()
        except DatabaseError as error:
            log.warning("the database does not answer, waiting for it", error=str(error).partition("\n")[0])
            connections.close_all()
            time.sleep(_PAUSE_SECONDS)
        else:
            return
