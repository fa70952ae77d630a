"""What is reported to ReqMgr2 of requests that came from there (spec 11; ADR 0023): effects, in the caller's transaction.

Of one that had completed and makes lost files again only its cleaning: in ReqMgr2 nothing leads back from there.
Each is reported once, in the order in which it came to be: an effect waits for those of its request that are still under way. One
that was refused waits for an operator and keeps nothing back, since a later status says all that an earlier one did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outputs_app.effects.requests import EffectRequest, effects_enqueue
from outputs_app.models import REPORTS, Effect, EffectKind, EffectState
from requests_app.models import ReqMgr2Request, Request, RequestStatus
from wms2.conf import conf
from wms2.runtime.notify import RUN_EFFECTS, notify

S = RequestStatus
#: HELD, QUEUED and the others are nothing that ReqMgr2 knows.
_STATUSES = {
    S.SUBMITTED: "acquired",
    S.ACTIVE: "running-open",
    S.COMPLETED: "completed",
    S.FAILED: "failed",
    S.ABORTED: "aborted",
    S.CLEANING: "rejected",
}
#: What the clone of a request is assigned with, beside its team and sites.
_ASSIGNED_WITH = ("TrustSitelists", "TrustPUSitelists", "MergedLFNBase", "UnmergedLFNBase", "Dashboard")


def report_status(request: Request, to: str) -> None:
    """The request has got this status."""
    status = _STATUSES.get(S(to))
    if status is not None and (request.completed_at is None or to == S.CLEANING):
        _status(request, status)


def report_round(request: Request, index: int, jobs: int, totals: Mapping[str, int], *, last: bool) -> None:
    """A round of so many jobs was submitted. ``totals`` are those of all the request's work, as known by now; reported is the
    difference to what earlier rounds have reported. ``last``: nothing is left to be planned."""
    if request.completed_at is not None:  # what ReqMgr2 has adds up to the work that was asked for
        return
    before = Effect.objects.filter(request=request, kind=EffectKind.REQMGR2_TOTALS).values_list("payload", flat=True)
    more = {name: number - sum(each["totals"][name] for each in before) for name, number in totals.items()}
    _ask(request, EffectKind.REQMGR2_TOTALS, f"{request.pk}:{index}", {"totals": {"total_jobs": jobs, **more}})
    if last:
        _status(request, "running-closed")


def report_next_version(request: Request, old: Request) -> None:
    """``request`` replaces ``old``: ReqMgr2 gets a clone, which is assigned to us as soon as this one begins."""
    before = ReqMgr2Request.objects.filter(request=old).exclude(name=None).first()
    if before is not None and conf().reqmgr2_report:
        ReqMgr2Request.objects.create(request=request)
        mark = f"wms2 {conf().instance}: {request.request_name} replaces {old.request_name}"
        _ask(request, EffectKind.REQMGR2_CLONE, str(request.pk), {"of": before.name, "mark": mark})


def reported(request: Request) -> bool:
    """Whether its progress is reported to ReqMgr2."""
    return conf().reqmgr2_report and ReqMgr2Request.objects.filter(request=request).exists()


def _status(request: Request, status: str) -> None:
    seen = ReqMgr2Request.objects.filter(request=request).first() if conf().reqmgr2_report else None
    if seen is None or seen.status == status:
        return
    payload: dict[str, Any] = {"status": status}
    if Effect.objects.filter(request=request, kind=EffectKind.REQMGR2_CLONE).exists():
        document = request.request_data
        sites = {"SiteWhitelist": document.get("SiteWhitelist"), "SiteBlacklist": document.get("SiteBlacklist") or []}
        more = {key: document[key] for key in _ASSIGNED_WITH if document.get(key) is not None}
        payload["assignment"] = {"Team": conf().team or document.get("Team") or "wms2", **sites, **more}
    _ask(request, EffectKind.REQMGR2_STATUS, f"{request.pk}:{status}", payload)


def _ask(request: Request, kind: EffectKind, of: str, payload: dict[str, Any]) -> None:
    if not reported(request):
        return
    under_way = Effect.objects.filter(request=request, kind__in=REPORTS, state__in=(EffectState.PENDING, EffectState.CLAIMED))
    after = list(under_way.exclude(key=f"{kind}:{of}").values_list("key", flat=True))
    wanted = [EffectRequest(kind, of, after, payload=payload)]
    effects_enqueue(effect_requests=wanted, request_id=request.pk, request_epoch=request.epoch)
    notify(RUN_EFFECTS)
