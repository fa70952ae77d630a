"""One life cycle at a time (``control-plane.md``, Leader): a session lock for mutual exclusion, a lease row for fencing.

A node keeps the lease while it renews it; a standby takes over when it has expired, with a higher epoch. Four changes of owner
within a minute cool down: the newcomer waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from requests_app.audit import audit
from requests_app.models import Lease
from wms2.conf import conf
from wms2.errors import LeaseLost
from wms2.identity import node_name
from wms2.locks import LockKey, session_lock

log = structlog.get_logger(__name__)
LEASE = "lifecycle"
FLAPPING_CHANGES, FLAPPING_SECONDS = 4, 60


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof of leading; ``check`` before each group of writes."""

    owner: str
    epoch: int

    def renew(self, **data: Any) -> None:
        """Keep the lease.

        Raises:
            LeaseLost: somebody else leads by now; stop writing.
        """
        now = timezone.now()
        with transaction.atomic():
            row = Lease.objects.select_for_update().get(name=LEASE)
            if (row.owner, row.epoch) != (self.owner, self.epoch):
                raise LeaseLost(f"the life cycle is led by {row.owner} with epoch {row.epoch}")
            row.heartbeat_at, row.expires_at = now, now + timedelta(seconds=conf().lease_seconds)
            row.data = row.data | data
            row.save(update_fields=["heartbeat_at", "expires_at", "data"])


@contextmanager
def leading() -> Iterator[Leadership | None]:
    """Lead for the length of the block, or yield None: another process is at it, or another node holds the lease."""
    with session_lock(LockKey.LEADER) as locked:
        yield _take(node_name()) if locked else None


def _take(owner: str) -> Leadership | None:
    now = timezone.now()
    with transaction.atomic():
        Lease.objects.get_or_create(name=LEASE)
        row = Lease.objects.select_for_update().get(name=LEASE)
        if row.owner != owner:
            if row.owner and row.expires_at and row.expires_at > now:
                return None
            recent = [t for t in row.changes if datetime.fromisoformat(t) > now - timedelta(seconds=FLAPPING_SECONDS)]
            if len(recent) >= FLAPPING_CHANGES:
                log.error("leadership is flapping, waiting", changes=len(recent), owner=row.owner, candidate=owner)
                return None
            if row.owner:
                audit(
                    actor=owner,
                    action="leader_takeover",
                    target=LEASE,
                    target_type="lease",
                    former=row.owner,
                    epoch=row.epoch + 1,
                )
                log.warning("taking over the life cycle", former=row.owner, epoch=row.epoch + 1)
            row.owner, row.epoch, row.acquired_at = owner, row.epoch + 1, now
            row.changes = [*recent, now.isoformat()]
        row.heartbeat_at, row.expires_at = now, now + timedelta(seconds=conf().lease_seconds)
        row.save()
    return Leadership(owner=owner, epoch=row.epoch)
