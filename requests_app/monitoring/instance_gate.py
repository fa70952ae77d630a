"""A web process on another installation's database serves nothing but its own health.

The server starts before the database answers, and before ``wms2_init`` has written whose it is; so the question is asked again
with each request until the answer is ours, and then no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import structlog
from django.db import DatabaseError

from requests_app.installation import ForeignDatabase, installation_verify
from wms2.errors import ConfigurationError

log = structlog.get_logger(__name__)
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_HEALTH = ("/livez", "/readyz")


class InstanceGate:
    """Before a WSGI application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._ours = False

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve, or say whose database it is not."""
        if not self._ours and environ.get("PATH_INFO") not in _HEALTH and (why := self.foreign()):
            log.error("not served", why=why)
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"WMS2 does not serve: its database belongs to another instance or environment.\n"]
        return self._application(environ, start_response)

    def foreign(self) -> str:
        """Whose it is when it is somebody else's; "" when it is ours, nobody's yet, or does not answer."""
        try:
            installation_verify()
        except ForeignDatabase as error:
            return str(error)
        except (ConfigurationError, DatabaseError):
            return ""
        self._ours = True
        return ""
