"""Whose database this is (``control-plane.md``, Instance isolation)."""

from __future__ import annotations

from requests_app.models import Installation
from wms2.conf import conf
from wms2.errors import ConfigurationError


def installation_claim() -> Installation:
    """Write our instance id and environment into an empty database, or verify what is there."""
    knobs = conf()
    row, _ = Installation.objects.get_or_create(id=1, defaults={"instance": knobs.instance, "environment": knobs.environment})
    installation_verify()
    return row


def installation_verify() -> None:
    """Raises:
    ConfigurationError: the database belongs to another instance or environment, or to nobody yet.
    """
    knobs, row = conf(), Installation.objects.first()
    if row is None:
        raise ConfigurationError("this database belongs to nobody yet; run: manage.py wms2_init")
    if (row.instance, row.environment) != (knobs.instance, knobs.environment):
        raise ConfigurationError(
            f"this database belongs to instance {row.instance} ({row.environment}), "
            f"this process is {knobs.instance} ({knobs.environment})"
        )
