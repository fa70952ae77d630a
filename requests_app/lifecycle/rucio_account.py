"""Rucio is asked now and then whether our account may do what outputs need; kept for ``/readyz`` and *Needs you*."""

from __future__ import annotations

import structlog

from outputs_app.checks.rucio_account import account_problems
from requests_app.models import Lease
from requests_app.selectors.lifecycle import RUCIO_ACCOUNT
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.runtime import clock

log = structlog.get_logger(__name__)


def rucio_account_check() -> None:
    """What a Rucio that does not answer would have said stays as it was."""
    try:
        problems = account_problems()
    except ServiceRejected as error:  # there is no such account, or it may not even be read
        problems = [str(error)]
    except ServiceUnavailable as error:
        log.warning("rights of the Rucio account not looked at, again later", error=str(error))
        return
    if problems:
        log.error("the Rucio account cannot do what outputs need", problems=problems)
    Lease.objects.update_or_create(name=RUCIO_ACCOUNT, defaults={"heartbeat_at": clock.now(), "data": {"problems": problems}})
