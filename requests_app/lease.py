"""The right to evaluate one request: a lease in its row, kept alive while held (docs/design/control.md, Evaluations).

Taking it raises ``lease_epoch``; every write of the evaluation compares that epoch, so a paused and replaced evaluation
changes nothing when it wakes up. A killed process's lease simply expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from django.db import OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from requests_app import states
from requests_app.models import Request, RequestStatus
from wms2 import clock
from wms2.conf import conf
from wms2.errors import LeaseLost, StaleState
from wms2.heartbeat import kept_alive
from wms2.locks import lock_refused
from wms2.metrics import LOCKS_REFUSED_TOTAL

log = structlog.get_logger(__name__)
ACTOR = "lifecycle"
Fence = Callable[[], AbstractContextManager[None]]


@dataclass(slots=True)
class Evaluation:
    """One held lease. Handlers write only through it."""

    request: Request
    lease_epoch: int

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """A transaction in which this evaluation still owns the request; the row is locked until commit.

        Raises:
            StaleState: the lease or the status changed; nothing inside is written.
        """
        with transaction.atomic():
            # no key of the row changes: rows that refer to it may be written by others meanwhile
            rows = Request.objects.select_for_update(no_key=True).filter(pk=self.request.pk)
            row = rows.values_list("lease_epoch", "status", "epoch").get()
            if row != (self.lease_epoch, self.request.status, self.request.epoch):
                raise LeaseLost(f"{self.request.request_name}: evaluated by somebody else or changed by an operator")
            yield

    def transition(self, to: RequestStatus, reason: str, evidence: dict[str, Any] | None = None, **changes: Any) -> None:
        """Take an edge as the life cycle."""
        states.transition(
            self.request, to, actor=ACTOR, reason=reason, evidence=evidence, lease_epoch=self.lease_epoch, **changes
        )

    def note(self, **fields: Any) -> None:
        """Update explaining fields (``waiting_for``, ``last_error``, ...) of the request, fenced."""
        changed = {k: v for k, v in fields.items() if getattr(self.request, k) != v}
        if not changed:
            return
        # the status too: what was noted of one status would stand as an untruth beside another
        rows = Request.objects.filter(pk=self.request.pk, lease_epoch=self.lease_epoch, status=self.request.status)
        if rows.update(updated_at=timezone.now(), **changed) != 1:
            raise LeaseLost(f"{self.request.request_name}: evaluated by somebody else or changed by an operator")
        for name, value in changed.items():
            setattr(self.request, name, value)


@contextmanager
def evaluating(pk: Any, *, owner: str) -> Iterator[Evaluation | None]:
    """Hold the request's lease; yields None when somebody else holds it or the request is gone."""
    epoch = _take(pk, owner)
    if epoch is None:
        yield None
        return
    try:
        with kept_alive(lambda: _renew(pk, epoch), life_seconds=conf().lease_seconds, request_id=str(pk)):
            yield Evaluation(request=Request.objects.get(pk=pk), lease_epoch=epoch)
    finally:
        _give_back(pk, epoch)


def _take(pk: Any, owner: str) -> int | None:
    """Whoever finds the row locked leaves it for the next cycle: a transaction that is paused must not hold up every worker."""
    with transaction.atomic():
        now = clock.now()
        free = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=now)
        row = Request.objects.select_for_update(skip_locked=True, no_key=True).filter(free, pk=pk).only("lease_epoch").first()
        if row is None:
            return None
        epoch = row.lease_epoch + 1
        until = now + timedelta(seconds=conf().lease_seconds)
        Request.objects.filter(pk=pk).update(lease_owner=owner, lease_epoch=epoch, lease_expires_at=until)
    return epoch


def _give_back(pk: Any, epoch: int) -> None:
    """What cannot be written runs out by itself."""
    rows = Request.objects.filter(pk=pk, lease_epoch=epoch)
    try:
        rows.update(lease_owner="", lease_expires_at=None, evaluated_at=clock.now())
    except OperationalError as error:
        if not lock_refused(error):
            raise
        LOCKS_REFUSED_TOTAL.labels("evaluation").inc()
        log.warning("lease not given back, it will expire", request_id=str(pk), error=str(error).splitlines()[0])


def _renew(pk: Any, epoch: int) -> bool:
    until = clock.now() + timedelta(seconds=conf().lease_seconds)
    return Request.objects.filter(pk=pk, lease_epoch=epoch).update(lease_expires_at=until) == 1


__all__ = ["ACTOR", "Evaluation", "Fence", "StaleState", "evaluating"]
