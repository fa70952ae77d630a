"""A web process on another installation's database, or on tables older than its release, serves nothing but its own health.

The server starts before the database answers or is migrated, and before ``wms2_init`` has written whose it is; so the question is
asked again with each request until the answer is ours, and then no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import structlog
from django.db import DatabaseError

from requests_app.installation import ForeignDatabase, TablesOlder, installation_verify, tables_verify
from wms2.errors import ConfigurationError

log = structlog.get_logger(__name__)
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_HEALTH = ("/livez", "/readyz")
_RETRY_AFTER_SECONDS = "30"


class InstanceGate:
    """Before a WSGI application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._ours = False

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve, or say what is wrong with the database."""
        if not self._ours and environ.get("PATH_INFO") not in _HEALTH and (why := self.refusal()):
            log.error("not served", why=str(why))
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", _RETRY_AFTER_SECONDS)]
            start_response("503 Service Unavailable", headers)
            older = isinstance(why, TablesOlder)
            what = "is yet to be migrated to this release" if older else "belongs to another instance or environment"
            return [f"WMS2 does not serve: its database {what}.\n".encode()]
        return self._application(environ, start_response)

    def refusal(self) -> ForeignDatabase | TablesOlder | None:
        """Why nothing is served; None when the database is ours, not claimed yet, or does not answer."""
        try:
            installation_verify()
            tables_verify()
        except (ForeignDatabase, TablesOlder) as error:
            return error
        except (ConfigurationError, DatabaseError):
            return None
        self._ours = True
        return None
