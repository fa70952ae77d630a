"""Operators set limits of admission: of a band of priorities, a campaign or a requester, or of all that have none (ADR 0025)."""

from __future__ import annotations

from typing import Any

from requests_app.admission.ordering import URGENT, GroupKind
from requests_app.models import AdmissionBucket, AdmissionLimit
from wms2.audit import audited
from wms2.errors import FieldRefused, InvalidTransition
from wms2.runtime.locks import LockKey, transaction_lock

#: What a limit says; what is not given is no limit; a ``hard`` of None: as it was.
_NONE = {"least_priority": None, "max_dags": None, "rate_per_hour": None, "burst": 1, "hard": None}


def admission_limit_change(*, limit: AdmissionLimit, actor: str, reason: str, **given: Any) -> AdmissionLimit:
    """Set all that a limit says. Its bucket, or those of all that it holds for, are full again.

    Raises:
        FieldRefused: a band without its lowest priority, something else with one.
        InvalidTransition: limits for all bands.
    """
    return _set(limit, "admission_limit_change", actor, reason, given, change_refused(limit))


def admission_limit_add(*, limit: AdmissionLimit, actor: str, reason: str, name: str, **given: Any) -> AdmissionLimit:
    """Give one of the kind limits of its own.

    Raises:
        FieldRefused: it has some already; or as for a change.
        InvalidTransition: the row is not that of a whole kind.
    """
    return _set(AdmissionLimit(kind=limit.kind, name=name), "admission_limit_add", actor, reason, given, add_refused(limit))


def admission_limit_remove(*, limit: AdmissionLimit, actor: str, reason: str) -> AdmissionLimit:
    """Those of its kind hold for it again."""
    with audited(actor=actor, action="admission_limit_remove", target=str(limit), target_type="admission limit", reason=reason):
        if refusal := remove_refused(limit):
            raise InvalidTransition(refusal)
        with transaction_lock(LockKey.ADMISSION):
            AdmissionLimit.objects.filter(pk=limit.pk).delete()
            _fill(limit)
    return limit


def add_refused(limit: AdmissionLimit) -> str:
    """Why no further limit can be added here."""
    return f"Add it where it says: every other {limit.kind}." if limit.name else ""


def remove_refused(limit: AdmissionLimit) -> str:
    """Why it cannot be removed."""
    return "" if limit.name else "It is that of the whole kind: change it to no limit."


def change_refused(limit: AdmissionLimit) -> str:
    """Why there is nothing to be changed."""
    return "Bands are limited one by one: add one." if limit.kind == GroupKind.BAND and not limit.name else ""


def limit_problem(limit: AdmissionLimit) -> tuple[str, str]:
    """The field that is wrong, and why; both empty when none is."""
    banded = limit.kind == GroupKind.BAND and limit.name != URGENT
    if banded and limit.least_priority is None:
        return "least_priority", "a band has a lowest priority; it goes up to the next higher band's"
    if not banded and limit.least_priority is not None:
        return "least_priority", "is for bands alone; that of urgent requests has none"
    if not limit.name and limit.max_dags == 0:
        return "max_dags", "0 would stop all that have no limit of their own"
    return "", ""


def _set(limit: AdmissionLimit, action: str, actor: str, reason: str, given: dict[str, Any], refusal: str) -> AdmissionLimit:
    old = {name: getattr(limit, name) for name in _NONE}
    new = _NONE | given
    if new["hard"] is None:
        new["hard"] = limit.hard
    with audited(actor=actor, action=action, target=str(limit), target_type="admission limit", reason=reason, old=old, new=new):
        if refusal:
            raise InvalidTransition(refusal)
        if limit._state.adding and AdmissionLimit.objects.filter(kind=limit.kind, name=limit.name).exists():
            raise FieldRefused("name", f"{limit} has limits of its own already: change these")
        for name, value in {**new, "actor": actor, "reason": reason}.items():
            setattr(limit, name, value)
        field, problem = limit_problem(limit)
        if field:
            raise FieldRefused(field, problem)
        with transaction_lock(LockKey.ADMISSION):
            limit.save()
            _fill(limit)
    return limit


def _fill(limit: AdmissionLimit) -> None:
    """Moments of buckets were counted with the old rate."""
    rows = AdmissionBucket.objects.filter(kind=limit.kind)
    (rows.filter(name=limit.name) if limit.name else rows).delete()
