"""Leases of what must not be oversubscribed: named resources with units, over all processes and hosts (ADR 0028).

A lease is a row with a token, judged by the database's clock: its holder reports, or it runs out, is taken away and audited.
No task waits for one: one that gets none (``ResourceBusy``) goes back to its queue, and says what it waits for. How many units
there are is a row that operators change at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import QuerySet, Sum

from wms2.audit import audit, audited
from wms2.errors import InvalidTransition, ResourceBusy, StaleState
from wms2.models import Resource, ResourceLease
from wms2.runtime import clock
from wms2.runtime.heartbeat import lease_kept_alive
from wms2.runtime.identity import process_name

PLANNING, REGISTRATION = "planning", "registration"
#: What WMS2 itself takes leases of, with units and what is counted.
OWN = {PLANNING: (2000, "MB of memory of plans"), REGISTRATION: (8, "blocks that are registered in DBS")}
_TTL_SECONDS = 60.0


def resources_ensure(**_: object) -> None:
    """After each migrate: what the code itself takes is there."""
    for name, (units, unit) in OWN.items():
        Resource.objects.get_or_create(name=name, defaults={"units": units, "unit": unit})


@contextmanager
def resource(name: str, units: int, holder: str) -> Iterator[None]:
    """Have so many units, or all there are, while the block runs. Raises ResourceBusy: others have them, or operators allow none;
    nothing was waited for; LeaseLost: from the next outside call inside, once the lease is lost."""
    there = Resource.objects.filter(pk=name).values_list("units", flat=True).first() or 0
    wanted = max(1, min(units, there))
    try:
        lease = lease_take(name=name, units=wanted, holder=holder, process=process_name(), ttl_seconds=_TTL_SECONDS)
    except InvalidTransition as error:
        raise ResourceBusy(str(error)) from error
    try:
        beat = partial(lease_beat, lease.token)
        with lease_kept_alive(beat, life_seconds=_TTL_SECONDS, expires_at=lease.expires_at, resource=name):
            yield
    finally:
        with suppress(DatabaseError):  # it runs out
            ResourceLease.objects.filter(pk=lease.pk).delete()


def lease_take(*, name: str, units: int, holder: str, process: str, ttl_seconds: float) -> ResourceLease:
    """Take units of a resource; those of leases that have run out are free. Raises InvalidTransition: there is no such resource,
    or never so much of it; ResourceBusy: others have too many of its units."""
    with transaction.atomic():
        found = Resource.objects.select_for_update(no_key=True).filter(pk=name).first()
        if found is None or units > found.units:
            raise InvalidTransition(f"{name}: {f'there are {found.units} in all' if found else 'there is no such resource'}")
        leases_expire(found.leases.all())
        taken = found.leases.aggregate(taken=Sum("units"))["taken"] or 0
        if taken + units > found.units:
            most = found.leases.order_by("-units", "pk")[0]
            who = f"{most.units} by {most.process} for {most.holder}, since {most.taken_at:%Y-%m-%d %H:%M} UTC"
            raise ResourceBusy(f"{name}: {units} of {found.units} {found.unit}, of which {taken} are taken: {who}")
        now = clock.now()
        return ResourceLease.objects.create(
            resource=found, units=units, holder=holder[:300], process=process, ttl_seconds=ttl_seconds,
            taken_at=now, heartbeat_at=now, expires_at=now + timedelta(seconds=ttl_seconds),
        )  # fmt: skip


def lease_beat(token: UUID) -> bool:
    """Have a lease for its time again, from now on; False if it has run out or was given back."""
    with transaction.atomic():
        row = ResourceLease.objects.select_for_update().filter(token=token, expires_at__gte=clock.in_sql()).first()
        if row is not None:
            row.heartbeat_at = clock.now()
            row.expires_at = row.heartbeat_at + timedelta(seconds=row.ttl_seconds)
            row.save(update_fields=("heartbeat_at", "expires_at"))
    return row is not None


def lease_release(*, lease: ResourceLease, actor: str, reason: str) -> None:
    """Give a lease back, or take it away from its holder. Twice is as once."""
    with audited(
        actor=actor, action="lease_release", target=lease.resource_id, target_type="resource", reason=reason,
        holder=lease.holder, units=lease.units,
    ):  # fmt: skip
        ResourceLease.objects.filter(pk=lease.pk).delete()


def leases_expire(leases: QuerySet[ResourceLease]) -> None:
    """Take back those of these that have run out, in the caller's transaction."""
    # locked: one that reports at this moment is looked at as it is then
    for lease in leases.filter(expires_at__lt=clock.in_sql()).select_for_update():
        reported: dict[str, Any] = {"holder": lease.holder, "process": lease.process, "units": lease.units}
        reason = f"the holder has not reported for {lease.ttl_seconds:g} s"
        audit(
            actor="lifecycle", action="lease_expire", target=lease.resource_id, target_type="resource", reason=reason, **reported
        )
        lease.delete()


def resource_set(*, row: Resource, units: int, actor: str, reason: str) -> None:
    """Say how many units there are. With fewer than are taken nothing is taken away: none is given until it fits. Raises
    StaleState: another user has changed it since it was read."""
    with audited(
        actor=actor, action="resource_set", target=row.name, target_type="resource", reason=reason, old=row.units, new=units
    ):
        if Resource.objects.filter(pk=row.pk, units=row.units).update(units=units, reason=f"{actor}: {reason}") != 1:
            raise StaleState(f"{row.name} was changed meanwhile")
