"""Settings for static checks (mypy, ``makemigrations --check``): harmless values where nothing is set. Contacts nothing."""

from __future__ import annotations

import os

for _name, _value in {
    "WMS2_ENVIRONMENT": "production",
    "WMS2_SECRET_KEY": "only-for-static-checks-" + "0123456789abcdefghijklmnopqrstuvwxyz",
    "WMS2_DATABASE_URL": "postgresql://unused@localhost/none",
    "WMS2_BROKER_URL": "redis://localhost:1/0",
    "WMS2_ALLOWED_HOSTS": "wms2.invalid",
}.items():
    os.environ.setdefault(_name, _value)

from wms2.settings import *  # noqa: E402, F403
