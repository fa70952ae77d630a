"""Users that a front end has named, over REST; who that is: ``wms2.identities.front_end``.

A browser shows its certificate to the front end on its own, also for a page of others: what it sends needs Django's CSRF token,
as with a session. Programs have none; they send none of the headers by which browsers say where a call comes from.
"""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request

from wms2.identities.front_end import FROM_FRONT_END

#: Each browser sends at least one of these with a call that changes something, and no page can keep it from that.
_OF_BROWSERS = ("Origin", "Sec-Fetch-Site", "Referer")


class FrontEndAuthentication(SessionAuthentication):
    """After tokens, which say more, and before sessions."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        """The user; None where no front end has named one. Raises PermissionDenied: a browser without CSRF token."""
        user = getattr(request._request, FROM_FRONT_END, None)
        if user is None:
            return None
        if any(name in request.headers for name in _OF_BROWSERS):
            self.enforce_csrf(request)
        return user, None
