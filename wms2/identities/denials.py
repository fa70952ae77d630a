"""What is refused for want of a sign-in, a role or a place in the rate is audited, over REST, in the admin and on pages alike.

One entry for each user (address without one), operation and minute, and no more than ``MOST_PER_MINUTE`` for all together, so
that ten thousand guesses do not fill the table; the metric counts each. Counted in the broker for all processes together; while
that is silent each process counts for itself. Not here: who is refused (``grants``, ``wms2.web.login_throttle``,
``wms2.api.rate_limits``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import PermissionDenied
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from wms2.audit import REFUSAL_AUDITED, audit
from wms2.errors import DocumentRefused, InvalidTransition, ServiceRejected
from wms2.metrics.series import DENIALS_TOTAL
from wms2.runtime.locks import DATABASE_AWAY
from wms2.runtime.shared_counts import SharedCounts
from wms2.runtime.storable import storable
from wms2.web.login_throttle import address_of

WINDOW_SECONDS = 60.0
#: Entries of a minute, of all users and operations together.
MOST_PER_MINUTE = 300
#: Actor of what is refused before it is known who asks.
UNKNOWN = "unknown"
_STATUSES = frozenset({401, 403, 429})
_WHY = "_wms2_denied_because"
log = structlog.get_logger(__name__)
#: Where they are counted; with a broker, all processes of the installation count together.
counted = SharedCounts()


def denial_record(*, actor: str, address: str, kind: str, target_type: str, target: str, why: str, **evidence: Any) -> None:
    """Audit a refusal, unless the same was audited within this minute. A database that is away is logged: the answer goes out.

    Args:
        actor: a user's name; empty: not known, and the address stands for it.
        kind: the status of the answer, or ``sign_in``, ``import``; of the metric.
    """
    DENIALS_TOTAL.labels(kind).inc()
    who = f"user {actor}" if actor else f"address {address}"
    what = hashlib.sha256("\0".join((who, kind, target)).encode(errors="surrogatepass")).hexdigest()[:32]
    if counted.ask(lambda counts: counts.add(what, WINDOW_SECONDS))[0] > 1:
        return
    number = counted.ask(lambda counts: counts.add("all", WINDOW_SECONDS))[0]
    if number > MOST_PER_MINUTE:
        return
    last = "; more is refused in this minute than is recorded" if number == MOST_PER_MINUTE else ""
    try:
        audit(
            actor=(actor or UNKNOWN)[:100], action="denied", target_type=target_type, target=target[:300],
            reason=f"{why}{last}", refused=True, address=address, kind=kind, **evidence,
        )  # fmt: skip
    except DATABASE_AWAY as error:
        log.warning("a denial is not audited, the database does not answer", actor=actor, target=target[:300], error=str(error))


@contextmanager
def import_refusals_recorded(actor: str, request: HttpRequest, name: str) -> Iterator[None]:
    """Imports that are refused get their entry as well, and the refusal goes on."""
    try:
        yield
    except (DocumentRefused, InvalidTransition, ServiceRejected) as error:
        denial_record(
            actor=actor, address=address_of(request), kind="import", target_type="request", target=name[:255], why=str(error)
        )
        raise


class DenialsMiddleware(MiddlewareMixin):
    """Records answers 401, 403 and 429, whichever door gave them. Stands outside of all that refuse; what has
    audited its own refusal (``wms2.audit.refusal_set_audited``) is only counted."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """Django's page of a 403 says nothing more to a middleware."""
        if isinstance(exception, PermissionDenied):
            setattr(request, _WHY, str(exception))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """The answer as it is."""
        if response.status_code not in _STATUSES:
            return response
        if hasattr(request, REFUSAL_AUDITED):
            DENIALS_TOTAL.labels(str(response.status_code)).inc()
            return response
        user, match = getattr(request, "user", None), request.resolver_match
        data = getattr(response, "data", None)
        why = data.get("detail") if isinstance(data, dict) else getattr(request, _WHY, "")
        operation = f"{request.method} {(match.view_name if match else '') or request.path}"
        denial_record(
            actor=user.get_username() if user is not None and user.is_authenticated else "",
            address=address_of(request), kind=str(response.status_code), target_type="call", target=operation,
            why=str(why or response.reason_phrase), path=request.path[:500],
        )  # fmt: skip
        return response


@receiver(user_login_failed, dispatch_uid="wms2.denials")
def sign_in_failed(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """A wrong password. What was typed as a name stands in the audit only where it is one: it may be the password."""
    if request is None:
        return
    typed = storable(str(credentials.get("username", ""))[:150])
    known = get_user_model().objects.filter(username=typed).exists()
    denial_record(
        actor="", address=address_of(request), kind="sign_in", target_type="user", target=typed if known else "no such user",
        why="the sign-in failed",
    )  # fmt: skip
