"""What operators change at run time, and what is in force of it to the moment: a Limit row over the default of ``wms2.conf``.

Most readers take it from ``wms2.runtime.in_force``, a few seconds old and without a query.
"""

from __future__ import annotations

from django.db import transaction
from pydantic import ValidationError

from requests_app.models import Limit, Request, RequestStatus
from wms2.audit import audit
from wms2.conf import Limits, conf
from wms2.errors import ConfigurationError
from wms2.runtime.due import mark_due
from wms2.runtime.in_force import checked, forget, over
from wms2.runtime.locks import LockKey, transaction_lock

#: Fewer reads than a page and its parts take would leave no page to change this on.
_FEWEST_READS = 10
_TIMEOUTS = {"timeout_queued_seconds": RequestStatus.QUEUED, "timeout_active_seconds": RequestStatus.ACTIVE}


def limits_now() -> Limits:
    """All limits as they are in force at this moment; one query."""
    return over(conf().limits, dict(Limit.objects.filter(name__in=[*Limits.model_fields]).values_list("name", "value")))[0]


def limit_set(*, name: str, value: float, actor: str, reason: str) -> Limit:
    """Change a limit at run time, audited.

    Raises:
        ConfigurationError: unknown name, not changeable, or a value that ``wms2.conf`` refuses.
    """
    if name not in Limits.model_fields:
        known = ", ".join(sorted(Limits.model_fields))
        raise ConfigurationError(f"{name} is not a limit that can be changed at run time; one of: {known}")
    try:
        wanted = checked(name, value)
    except ValidationError as error:
        raise ConfigurationError(f"{name}: {error.errors()[0]['msg']}") from error
    if name == "rate_limit_read" and 0 < wanted < _FEWEST_READS:
        raise ConfigurationError(f"{name}: 0 for no limit, or at least {_FEWEST_READS}, which a page and its parts take")
    with transaction_lock(LockKey.LIMITS):  # who compares versions of all limits first sees no other change in between
        old = Limit.objects.filter(name=name).values_list("value", flat=True).first()
        row, _ = Limit.objects.update_or_create(name=name, defaults={"value": wanted, "actor": actor, "reason": reason})
        status = _TIMEOUTS.get(name)
        if status is not None:  # they come back at a moment that was counted with the old one
            mark_due(Request.objects.filter(status=status).values_list("pk", flat=True), "limit changed")
        transaction.on_commit(forget)
        audit(actor=actor, action="limit_set", target=name, target_type="limit", reason=reason, old=old, new=wanted)
    return row
