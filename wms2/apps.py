"""The Django app of the wiring: system checks and the metrics collector. Owns no tables."""

from __future__ import annotations

from django.apps import AppConfig


class Wms2Config(AppConfig):
    """Registers the checks of ``wms2.checks``."""

    name = "wms2"
    label = "wms2"
    verbose_name = "WMS2"

    def ready(self) -> None:
        """Import for their registrations."""
        from wms2 import checks  # noqa: F401
