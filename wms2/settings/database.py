"""A database URL as Django wants it, with limits to what one session may make others wait for."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from wms2.conf import DATABASE_IDLE_SECONDS

#: A session waits so long for a row or lock of another; then the step is put off to the next cycle.
_LOCK_SECONDS = 10
#: Both ends of a connection give up a silent peer after this.
_SILENT_SECONDS = 30


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
        "OPTIONS": {"connect_timeout": 5, "application_name": "wms2", **_limits()},
    }


def _limits() -> dict[str, Any]:
    """Of a session, at both its ends: how long it waits for a lock, idles in a transaction, and believes in a silent peer.

    Without them a process that is paused in a transaction holds up every other one for as long as it likes, and one that is cut
    off keeps its locks until TCP gives up, after hours.
    """
    probes, pause = 3, _SILENT_SECONDS // 6
    server = {
        "lock_timeout": f"{_LOCK_SECONDS * 1000}",
        "idle_in_transaction_session_timeout": f"{DATABASE_IDLE_SECONDS * 1000}",
        "client_connection_check_interval": f"{_SILENT_SECONDS * 1000}",
        "tcp_keepalives_idle": f"{_SILENT_SECONDS // 2}",
        "tcp_keepalives_interval": f"{pause}",
        "tcp_keepalives_count": f"{probes}",
        "tcp_user_timeout": f"{_SILENT_SECONDS * 1000}",
    }
    return {
        "options": " ".join(f"-c {name}={value}" for name, value in server.items()),
        "keepalives": 1,
        "keepalives_idle": _SILENT_SECONDS // 2,
        "keepalives_interval": pause,
        "keepalives_count": probes,
        "tcp_user_timeout": _SILENT_SECONDS * 1000,
    }
