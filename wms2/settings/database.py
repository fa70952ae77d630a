"""A database URL as Django wants it, with limits to what one session may make others wait for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from wms2.conf import Conf


def database_from_url(url: str) -> dict[str, Any]:
    """``postgresql://user:password@host:port/name`` or ``postgresql://user@/name?host=/socket/dir`` to Django's dict. Raises
    ImproperlyConfigured: not a PostgreSQL URL, or no database name."""
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
        "OPTIONS": {"connect_timeout": 5, "application_name": "wms2", **_limits(os.environ)},
    }


def _limits(environment: Mapping[str, str]) -> dict[str, Any]:
    """Of a session, at both its ends: how long it waits for a lock, idles in a transaction, and believes in a silent peer.

    Without them a process that is paused in a transaction holds up every other one for as long as it likes, and one that is cut
    off keeps its locks until TCP gives up, after hours.
    """
    lock, idle, silent = (
        float(environment.get(f"WMS2_{name.upper()}") or Conf.model_fields[name].default)
        for name in ("database_lock_seconds", "database_idle_seconds", "database_silent_seconds")
    )
    probes, pause = 3, max(1, round(silent / 6))
    server = {
        "lock_timeout": f"{lock * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{idle * 1000:.0f}",
        "client_connection_check_interval": f"{silent * 1000:.0f}",
        "tcp_keepalives_idle": f"{silent / 2:.0f}",
        "tcp_keepalives_interval": f"{pause}",
        "tcp_keepalives_count": f"{probes}",
        "tcp_user_timeout": f"{silent * 1000:.0f}",
    }
    return {
        "options": " ".join(f"-c {name}={value}" for name, value in server.items()),
        "keepalives": 1,
        "keepalives_idle": round(silent / 2),
        "keepalives_interval": pause,
        "keepalives_count": probes,
        "tcp_user_timeout": round(silent * 1000),
    }
