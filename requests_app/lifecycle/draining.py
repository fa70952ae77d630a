"""Drains of schedds go on with each cycle: what is to be moved is moved, so many at a time, and the end is recorded once."""

from __future__ import annotations

from functools import partial

import structlog

from dags_app.models import IN_QUEUE
from requests_app.admission.placement import Room, usable
from requests_app.alerts import report_broken
from requests_app.models import Request, RequestStatus
from requests_app.selectors.drains import drain_moving, drain_progress
from requests_app.services.moving import request_move
from requests_app.work.overrides import overrides_of
from sites_app.models import Schedd, ScheddState
from sites_app.schedds import schedd_broke
from wms2.audit import audit
from wms2.errors import InvalidTransition, StaleState
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
STEP = "drains of schedds"


def drains_go_on(fenced: Fenced) -> None:
    """Stop the next DAGs of each schedd whose drain moves them, the longest running first, while another schedd can take them."""
    for schedd in Schedd.objects.filter(state=ScheddState.DRAINING):
        with row_by_itself(STEP, schedd.name, partial(schedd_broke, schedd)):
            _go_on(schedd, fenced)


def _go_on(schedd: Schedd, fenced: Fenced) -> None:
    free = schedd.drain_at_once - drain_moving(schedd).count()
    if free > 0:
        room = Room.now()
        there = schedd.dags.filter(status__in=IN_QUEUE, stop_requested_at__isnull=True, lost_confirmed_at__isnull=True)
        runs = Request.objects.filter(status=RequestStatus.ACTIVE, workflow__dags__in=there)
        for request in runs.defer("request_data", "prepared").order_by("workflow__dags__submitted_at"):
            if free <= 0:
                break
            with row_by_itself(STEP, request, partial(report_broken, pk=request.pk)):
                # one that no other schedd may take runs to its end, and does not block those behind it
                if usable(room, room.schedds, overrides_of(request).pools or ()):
                    with fenced():
                        _move(request, schedd)
                    free -= 1
    if schedd.drained_at is None and drain_progress(schedd).drained:
        with fenced():
            if Schedd.objects.filter(pk=schedd.pk, drained_at__isnull=True).update(drained_at=clock.now()):
                audit(
                    actor=schedd.drain_actor, action="schedd_drained", target=schedd.name, target_type="schedd",
                    reason=schedd.drain_reason,
                )  # fmt: skip


def _move(request: Request, schedd: Schedd) -> None:
    try:
        reason = f"{schedd.name} is drained: {schedd.drain_reason}"
        request_move(request=request, actor=schedd.drain_actor, reason=reason, drain=True)
    except (InvalidTransition, StaleState) as error:  # it has changed just now; the next cycle looks again
        log.info("not moved", request_name=request.request_name, why=str(error))
