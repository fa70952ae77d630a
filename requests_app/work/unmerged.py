"""What CMS's MSUnmerged may delete of a request's unmerged files: whole directories that are of no request active in ReqMgr2."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from requests_app.alerts import alert, alert_over
from requests_app.lease import Evaluation
from requests_app.models import Request
from requests_app.work.spec import spec_of
from wms2.adapters import factory
from wms2.adapters.wmstats import WMStats
from wms2.conf import conf
from wms2.errors import ServiceError
from wms2.runtime import clock
from wms2.web.formatting import counted

log = structlog.get_logger(__name__)
UNPROTECTED = "unmerged_unprotected"
#: A next version begins before its clone is in ReqMgr2; its directories are new, and in no site's list of files so soon.
_CLONED_WITHIN = timedelta(days=1)
#: MSUnmerged cuts names behind ``/store/unmerged/<era>/<primary>/<tier>/<processing>``.
_DEPTH = 7
_CACHE_TIME = timedelta(minutes=5)
#: What is protected wakes no request; MSUnmerged runs every few hours.
_AGAIN = timedelta(hours=1)
#: What this process was answered last.
_KNOWN: dict[WMStats, tuple[datetime, frozenset[str]]] = {}


def unmerged_watch(evaluation: Evaluation) -> None:
    """Alert on directories that are not protected, until they are. Nothing waits for it."""
    request = evaluation.request
    if not conf().wmstats_url:
        return
    evaluation.again_in(_AGAIN.total_seconds())
    if request.previous_version_request_id is not None and clock.now() - request.created_at < _CLONED_WITHIN:
        return
    try:
        protected = _protected(factory.wmstats())
    except ServiceError as error:
        log.warning("not known what MSUnmerged leaves alone", request_name=request.request_name, error=str(error))
        return
    if missing := sorted(_directories(request) - protected):
        many = counted(len(missing), "directory", "directories")
        what = f"MSUnmerged may delete what this request writes: {many} of it, e.g. {missing[0]}, of no active request in ReqMgr2"
        why = "ReqMgr2 does not have it (a document, WMS2_REQMGR2_REPORT=0, no clone yet), or has it as ended"
        alert(request, "unmerged_unprotected", f"{what}. {why}")
    else:
        alert_over(evaluation, UNPROTECTED)


def _protected(wmstats: WMStats) -> frozenset[str]:
    """As it was some minutes ago: MSUnmerged itself runs every few hours."""
    known = _KNOWN.get(wmstats)
    if known is None or known[0] < clock.now() - _CACHE_TIME:
        _KNOWN.clear()
        known = _KNOWN[wmstats] = clock.now(), frozenset(map(_cut, wmstats.protected_lfns()))
    return known[1]


def _directories(request: Request) -> set[str]:
    spec = spec_of(request.workflow)
    bases = [base for step in spec.steps for base in step.unmerged_lfn_bases]
    bases += [output.unmerged_lfn_base for output in spec.outputs]
    return {_cut(base) for base in bases if base.startswith("/store/unmerged/")}


def _cut(lfn: str) -> str:
    return "/".join(lfn.split("/")[:_DEPTH])
