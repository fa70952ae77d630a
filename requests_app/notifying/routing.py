"""Which alerts go to which channel or watcher."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from requests_app.models import Alert, AlertRoute


def fits(route: AlertRoute, alert: Alert) -> bool:
    """Whether all that a route names is so of an alert; its request has been read."""
    request = alert.request
    return (
        fnmatchcase(alert.code, route.code)
        and route.severity in ("", alert.severity)
        and (not route.site or fnmatchcase(alert.site, route.site))
        and (not route.campaign or (request is not None and fnmatchcase(request.campaign, route.campaign)))
        and (not route.request_name or (request is not None and request.request_name == route.request_name))
    )


def routed(routes: Iterable[AlertRoute], alerts: Iterable[Alert]) -> list[Alert]:
    """Alerts that one of the routes fits."""
    known = list(routes)
    return [alert for alert in alerts if any(fits(route, alert) for route in known)]
