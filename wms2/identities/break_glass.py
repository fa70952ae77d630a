"""Break-glass accounts: local users with a password, for when single sign-on is down. Each of their sign-ins rings an alert.

Owns: noticing it. Their passwords are Django's, and depend on no other service.
"""

from __future__ import annotations

from typing import Any

import structlog
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from wms2.audit import audit
from wms2.conf import conf
from wms2.metrics.series import BREAK_GLASS_TOTAL
from wms2.web.login_throttle import address_of

log = structlog.get_logger(__name__)


@receiver(user_logged_in, dispatch_uid="wms2.break_glass")
def break_glass_noticed(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    """Count, log and audit it."""
    name = user.get_username()
    if name not in conf().break_glass_accounts:
        return
    address = address_of(request) if request is not None else ""
    BREAK_GLASS_TOTAL.inc()
    log.warning("break-glass account signed in", user=name, address=address)
    audit(actor=name[:100], action="break_glass_sign_in", target=name, target_type="user", address=address)
