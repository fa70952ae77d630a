"""What operators change at run time, and what is in force of it to the moment: a Limit row over the default of ``wms2.conf``.

Most readers take it from ``wms2.runtime.in_force``, a few seconds old and without a query.
"""

from __future__ import annotations

from django.db import transaction
from pydantic import ValidationError

from requests_app.models import Limit, Request, RequestStatus
from wms2.audit import audit
from wms2.conf import Conf, conf
from wms2.errors import ConfigurationError
from wms2.runtime.due import mark_due
from wms2.runtime.in_force import checked, forget, over
from wms2.runtime.locks import LockKey, transaction_lock

#: What may be changed at run time, as it is shown; everything else needs a restart.
GROUPS = {
    "Admission": (
        "max_active_dags", "idle_job_budget", "admission_high_watermark", "admission_low_watermark", "admission_aging_per_hour",
        "timeout_queued_seconds", "timeout_active_seconds",
    ),
    "Planning": ("jobs_per_work_unit", "work_units_per_round", "dag_max_merge_groups", "block_target_bytes"),
    "Errors": ("error_hold_threshold", "error_max_rescue_attempts"),
    "Site bans": (
        "site_ban_duration_days", "site_ban_min_failures", "site_ban_failure_ratio", "site_ban_promotion_threshold",
    ),
    "Retries": (
        "retry_processing", "retry_merge", "cooloff_base_seconds", "retry_after_failure_seconds",
        "retry_after_failure_max_seconds", "effect_max_pause_seconds", "effect_max_retry_seconds", "removal_tries",
        "harvest_max_attempts",
    ),
    "Memory": ("default_memory_per_core_mb", "max_memory_per_core_mb", "memory_margin"),
    "Rates": ("rate_limit_submit", "rate_limit_read", "rate_limit_act", "rate_limit_streams"),
}  # fmt: skip
CHANGEABLE = frozenset(name for names in GROUPS.values() for name in names)

#: Fewer reads than a page and its parts take would leave no page to change this on.
_FEWEST_READS = 10
_TIMEOUTS = {"timeout_queued_seconds": RequestStatus.QUEUED, "timeout_active_seconds": RequestStatus.ACTIVE}


def limits_now() -> Conf:
    """All settings as they are in force at this moment; one query."""
    return over(conf(), dict(Limit.objects.filter(name__in=CHANGEABLE).values_list("name", "value")))[0]


def limit_set(*, name: str, value: float, actor: str, reason: str) -> Limit:
    """Change a setting at run time, audited.

    Raises:
        ConfigurationError: unknown name, not changeable, or a value that ``wms2.conf`` refuses.
    """
    if name not in CHANGEABLE:
        raise ConfigurationError(
            f"{name} is not a limit that can be changed at run time; one of: {', '.join(sorted(CHANGEABLE))}"
        )
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
