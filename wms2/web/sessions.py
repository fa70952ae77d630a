"""Sessions in the browser: where they begin, how long they last, and whose they are. The rows are Django's.

A session ends ``ABSOLUTE_SECONDS`` after its sign-in, which is its row's own end, and ``IDLE_SECONDS`` after its
user did something last. What pages ask for by themselves is not that. Both are judged where the session is read, so that what
needs no session reads none.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import structlog
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from wms2.web.login_throttle import address_of

#: In the session: seconds since 1970 of the sign-in and of what its user did last; whence the sign-in came.
BEGAN, SEEN, ADDRESS = "wms2_began", "wms2_seen", "wms2_address"
#: What its user does is written down so often at most.
_NOTED_SECONDS = 60.0
#: A session ends when its user has done nothing for so long, and so long after its sign-in, whatever is done: a shift.
IDLE_SECONDS, ABSOLUTE_SECONDS = 2 * 3600, 12 * 3600
#: What a page, and Flower for each of its own, ask for by themselves.
_BY_ITSELF = ("/api/v1/auth/", "/api/v1/events")
log = structlog.get_logger(__name__)


class SessionStore(db.SessionStore):
    """Django's, which does not know a session that was idle for too long."""

    def load(self) -> dict[str, Any]:
        """What the session holds; nothing, and no row of it left, where it has ended."""
        found: dict[str, Any] = super().load()
        seen = found.get(SEEN)
        if seen is None or _now() - seen <= IDLE_SECONDS:
            return found
        log.info("session ended: idle", user_id=found.get(SESSION_KEY), seconds=round(_now() - seen))
        self.delete(self.session_key)
        self._session_key = None
        return {}


class SessionActivityMiddleware(MiddlewareMixin):
    """Inside Django's own of sessions, which saves what is changed here. No answer that a view made is kept by a browser."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Note that the user does something; ask that nothing keep the answer."""
        session = request.session
        by_itself = "X-Wms2-Part" in request.headers or request.path.startswith(_BY_ITSELF)
        if session.accessed and not by_itself and SESSION_KEY in session and _now() - session.get(SEEN, 0) > _NOTED_SECONDS:
            session[SEEN] = _now()
        response.headers.setdefault("Cache-Control", "no-store")
        return response


@receiver(user_logged_in, dispatch_uid="wms2.session_begins")
def session_begins(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    """The absolute end becomes the row's own, which Django holds to and by which rows are cleared."""
    if request is None or not hasattr(request, "session"):
        return
    request.session.set_expiry(timezone.now() + timedelta(seconds=ABSOLUTE_SECONDS))
    request.session.update({BEGAN: _now(), SEEN: _now(), ADDRESS: address_of(request)})
    log.info("signed in", user=user.get_username(), by=getattr(user, "backend", ""), address=address_of(request))


@receiver(user_login_failed, dispatch_uid="wms2.sign_in_failed")
def sign_in_failed(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """One line; the name as it was given, since it is what guessing is seen by."""
    address = address_of(request) if request is not None else ""
    log.warning("sign-in failed", name=str(credentials.get("username", ""))[:100], address=address)


@receiver(user_logged_out, dispatch_uid="wms2.session_ends")
def session_ends(sender: Any, user: Any, **_: Any) -> None:
    """One line."""
    if user is not None:
        log.info("signed out", user=user.get_username())


def sessions_of(user: AbstractBaseUser) -> list[Session]:
    """Those that go on, the newest first. All are read: a row does not say whose it is, and there are few."""
    rows = Session.objects.filter(expire_date__gt=timezone.now()).order_by("-expire_date")
    idle = _now() - IDLE_SECONDS
    held = ((row, row.get_decoded()) for row in rows.iterator())
    return [row for row, data in held if data.get(SESSION_KEY) == str(user.pk) and data.get(SEEN, 0) >= idle]


def sessions_end(user: AbstractBaseUser, *, but: str | None = None) -> int:
    """End those of a user, ``but`` one by its key; how many they were."""
    rows = [row for row in sessions_of(user) if row.session_key != but]
    number, _ = Session.objects.filter(pk__in=[row.pk for row in rows]).delete()
    log.info("sessions ended", user=user.get_username(), sessions=number)
    return number


def _now() -> int:
    return int(timezone.now().timestamp())
