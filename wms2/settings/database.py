"""A database URL as Django wants it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def database_from_url(url: str) -> dict[str, Any]:
    """``postgresql://user:password@host:port/name`` or ``postgresql://user@/name?host=/socket/dir`` to Django's dict.

    Raises:
        ImproperlyConfigured: not a PostgreSQL URL, or no database name.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
        raise ImproperlyConfigured("WMS2_DATABASE_URL must look like postgresql://user:password@host:port/name")
    query = parse_qs(parts.query)
    return {
        "ENGINE": "django_prometheus.db.backends.postgresql",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or "postgres"),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", [parts.hostname or ""])[0],
        "PORT": str(parts.port or query.get("port", [""])[0]),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, "application_name": "wms2"},
    }
