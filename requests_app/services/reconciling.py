"""A whole cycle at once, asked for by an operator: the actor, and the record of it. The cycle is the life cycle's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db.models import Count

from requests_app.models import LEADER_LEASE, Event, Lease, Reconciliation, Request, RequestStatus
from sites_app.models import Schedd
from wms2.audit import audit
from wms2.runtime import clock
from wms2.runtime.locks import Fenced, LockKey, lock_until_commit, transaction_lock
from wms2.runtime.notify import RUN_CYCLE, notify


def reconcile(*, actor: str, reason: str, lease: Lease | None = None) -> Reconciliation:
    """Have the leader run a whole cycle now; one that waits already is the same."""
    with transaction_lock(LockKey.RECONCILE):
        row = Reconciliation.objects.filter(begun_at=None).first() or Reconciliation(asked_by=actor, reason=reason, asked=0)
        row.asked += 1
        row.save()
        audit(actor=actor, action="reconcile", target=row.pk, target_type="reconciliation", reason=reason, asked=row.asked)
        notify(RUN_CYCLE)
    return row


@contextmanager
def reconciling(fenced: Fenced) -> Iterator[bool]:
    """Whether a whole cycle was asked for; what it found and did in the block, or why it did not end, is kept with it."""
    waiting = list(Reconciliation.objects.filter(ended_at=None).values_list("pk", flat=True))
    if not waiting:
        yield False
        return
    rows, began = Reconciliation.objects.filter(pk__in=waiting), clock.now()
    with fenced():
        lock_until_commit(LockKey.RECONCILE)  # none joins one that has begun
        rows.update(begun_at=began)
        Schedd.objects.update(orphans_asked_at=None)  # all are searched for unknown jobs
    try:
        yield True
    except Exception as error:
        rows.update(ended_at=clock.now(), found={"problem": str(error)})
        raise
    with fenced():
        rows.update(ended_at=clock.now(), found=_found(began))


def _found(began: datetime) -> dict[str, Any]:
    schedds = list(Schedd.objects.filter(asked_at__gte=began))
    happened = Event.objects.filter(at__gte=began).order_by("kind").values_list("kind").annotate(Count("id"))
    lease = Lease.objects.get(name=LEADER_LEASE)
    return {
        "schedds": {row.name: row.last_error if row.unreachable_since else "answered" for row in schedds},
        "orphans": {row.name: row.orphans for row in schedds if row.orphans},
        "requests_swept": lease.data.get("swept", 0),
        "requests_started": Request.objects.filter(status=RequestStatus.PLANNING, status_since__gte=began).count(),
        "requests_queued": Request.objects.filter(status=RequestStatus.QUEUED).count(),
        "events": dict(happened),
    }
