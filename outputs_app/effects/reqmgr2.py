"""Calls to ReqMgr2 about a request that came from there: status, work of its rounds, its next version (ADR 0023).

No other effect waits for these. People may have moved the request further: it never goes backwards.
"""

from __future__ import annotations

from typing import Any

from outputs_app.effects.handler import Result, handles
from outputs_app.models import Effect, EffectKind, EffectState
from wms2.adapters import factory
from wms2.adapters.reqmgr2 import STATISTICS
from wms2.errors import ServiceUnavailable
from wms2.runtime import clock

#: Ends that are ReqMgr2's own; the other statuses are steps on one way.
_GIVEN_UP = ("failed", "aborted", "rejected")


def _name(effect: Effect) -> str:
    name = effect.request.reqmgr2.name
    if name is None:
        raise ServiceUnavailable(
            "reqmgr2", effect.kind, f"{effect.request.request_name} has no name there until its clone is made"
        )
    return name


def _record(effect: Effect, **values: Any) -> None:
    seen = effect.request.reqmgr2
    type(seen).objects.filter(pk=seen.pk).update(**values)


@handles(EffectKind.REQMGR2_STATUS, lambda effect, result: _record(effect, status=result["status"], compared_at=clock.now()))
def _report_status(effect: Effect) -> Result:
    """The status it is in there afterwards."""
    wanted, reqmgr2 = str(effect.payload["status"]), factory.reqmgr2()
    if wanted in _GIVEN_UP:
        return {"status": reqmgr2.give_up(_name(effect), wanted)}
    return {"status": reqmgr2.advance_status(_name(effect), wanted, effect.payload.get("assignment"))}


@handles(EffectKind.REQMGR2_TOTALS)
def _report_totals(effect: Effect) -> Result:
    """ReqMgr2 adds up what it is sent, so it gets only what is missing there: it may have this already, from a call whose answer
    was lost or from WMCore's work queue."""
    done = Effect.objects.filter(request=effect.request_id, kind=EffectKind.REQMGR2_TOTALS, state=EffectState.DONE)
    earlier = [payload["totals"] for payload in done.values_list("payload", flat=True)]
    document, more = factory.reqmgr2().request(_name(effect)), {}
    there = {name: int(document.get(key) or 0) for name, key in STATISTICS.items()}
    for name, number in there.items():
        reported = sum(each[name] for each in earlier)
        missing = reported + effect.payload["totals"][name] - number
        more[name] = missing if number == reported else max(0, missing)
    if any(more.values()):
        factory.reqmgr2().add_statistics(_name(effect), more)
    return {"before": there}


@handles(EffectKind.REQMGR2_CLONE, lambda effect, result: _record(effect, name=result["name"], status="new"))
def _clone(effect: Effect) -> Result:
    """Of the request whose next version this one is; found again by a mark that names this one."""
    payload: dict[str, Any] = effect.payload
    return {"name": factory.reqmgr2().clone(payload["of"], payload["mark"])}
