"""Who may start next (spec 4.4; docs/design/control.md, Admission).

One pass looks at as many requests as slots are free, urgent first, then priority, then time queued; the others are not touched,
but for what they wait for, written where it has changed by one statement. Counts live DAG rows, never statuses. A request that
pauses carries ``next_attempt_at`` and is passed over until its own evaluation has taken that off. One advisory lock keeps two
passes from taking the same last slot. Where a request's DAG goes, ``requests_app.placement`` says.
"""

from __future__ import annotations

import uuid
from collections import defaultdict

import structlog
from django.db import transaction
from django.db.models import QuerySet

from dags_app.services.submit import credential_obstacle
from requests_app.fair_share import share_of
from requests_app.models import Request, RequestStatus
from requests_app.placement import Decision, Limits, Room, Wanted, dags_before, dags_to_rescue, place, running_now, slots_used
from requests_app.service_level import no_new_work
from requests_app.states import transition
from sites_app.guard import systemic_trouble
from wms2 import clock
from wms2.errors import StaleState
from wms2.locks import Fenced, LockKey, transaction_lock
from wms2.wakes import wake

log = structlog.get_logger(__name__)
#: What those wait for that a pass does not come to.
ITS_TURN = "its turn in the queue"


def queue() -> QuerySet[Request]:
    """QUEUED requests in admission order, those that pause included."""
    return Request.objects.filter(status=RequestStatus.QUEUED).order_by("-urgent", "-priority", "queued_at", "id")


def eligible() -> QuerySet[Request]:
    """The queue without those that pause."""
    return queue().filter(next_attempt_at__isnull=True)


def admit(*, fenced: Fenced = transaction.atomic) -> int:
    """One pass over the queue: who starts now takes its slot and becomes PLANNING; the others are told what they wait for.

    Args:
        fenced: the transaction to write in, e.g. the leader's.

    Returns:
        How many were admitted.
    """
    if not eligible().exists():
        return 0
    without = no_new_work() or systemic_trouble() or credential_obstacle()
    with fenced(), transaction_lock(LockKey.ADMISSION):
        if without:
            _tell(eligible(), without)
            return 0
        limits = Limits.now()
        used = slots_used()
        free = limits.active_dags - used
        if free <= 0:
            _tell(eligible(), f"a free DAG slot: all {limits.active_dags} are in use")
            return 0
        # one that somebody keeps locked must not stop the others: the next pass comes to it
        unlocked = eligible().defer("request_data", "prepared").select_for_update(skip_locked=True, no_key=True)
        first = list(unlocked[:free])
        room, rescued, before = Room.now(), dags_to_rescue(first), dags_before(first)
        share = share_of(limits.idle_jobs, running_now(limits), sharers=used + len(first))
        waits: dict[str, list[uuid.UUID]] = defaultdict(list)
        for request in first:
            wanted = Wanted.of(request, before.get(request.pk), limits, share)
            decision = place(rescued.get(request.pk), room, wanted, reserved=None)
            if decision.schedd is None:
                waits[decision.waits_for].append(request.pk)
            elif _start(request, decision):
                room.take(decision.schedd, decision.slots)
        for why, pks in waits.items():
            _tell(eligible().filter(pk__in=pks), why)
        _tell(eligible().exclude(pk__in=[request.pk for request in first]), ITS_TURN)
        started = [request.pk for request in first if request.status == RequestStatus.PLANNING]
        wake(started, "admitted")
    return len(started)


def _start(request: Request, decision: Decision) -> bool:
    """Take the slot; False when the request has changed just now."""
    try:
        with transaction.atomic():
            transition(
                request,
                RequestStatus.PLANNING,
                actor="lifecycle",
                reason="admitted: a DAG slot is free and it is this request's turn",
                evidence=decision.placement,
                reserved_schedd=decision.schedd,
                reserved_slots=decision.slots,
            )
    except StaleState as error:
        log.info("not admitted", request_name=request.request_name, why=str(error))
        return False
    return True


def _tell(rows: QuerySet[Request], why: str) -> None:
    rows.order_by().exclude(waiting_for=why).update(waiting_for=why, updated_at=clock.now())
