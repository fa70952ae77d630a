"""Cutting the claims of units whose files were lost, once these are INVALID outside (docs/design/model.md, A unit is done).

What is cut goes back to the ledger: of an input as attempted, of a generation as lost numbers that others make up for.
"""

from __future__ import annotations

import structlog
from django.db.models import Q, QuerySet

from dags_app.models import WorkUnit
from dags_app.planning.closure import Piece
from dags_app.services.claims import claims_cut
from outputs_app.checks.cases import repaired_check
from outputs_app.checks.validation import validation_again
from outputs_app.models import OPEN_CASE, SETTLED_EFFECT, CaseAction, CaseState, Effect, EffectState, IntegrityCase
from requests_app.feed import emit_event
from requests_app.lease import Evaluation
from requests_app.models import Workflow
from wms2.runtime import clock
from wms2.runtime.crash import crash_point

log = structlog.get_logger(__name__)


def cases_settle(evaluation: Evaluation) -> int:
    """Cut what removals have taken back whole, end cases of which nothing is left to do; returns how many are still open.

    Raises:
        LedgerViolation: a unit does not claim any more what was to be cut.
    """
    cases = IntegrityCase.objects.filter(request=evaluation.request, state__in=OPEN_CASE)
    for case in cases.filter(action=CaseAction.REMOVED, cut__has_key="units"):
        states = set(Effect.objects.filter(key__in=case.cut["effects"]).values_list("state", flat=True))
        if states <= {EffectState.DONE}:
            crash_point("cut.claimed")
            with evaluation.fenced():
                _cut(evaluation, case)
            crash_point("cut.recorded")
        elif states <= {*SETTLED_EFFECT}:  # an operator gave it up: what is left valid waits for another decision
            with evaluation.fenced():
                _together(case).update(state=CaseState.NEW, action="", cut={})
    with evaluation.fenced():
        repaired_check(evaluation.request.pk)
    return cases.count()


def _cut(evaluation: Evaluation, case: IntegrityCase) -> None:
    now, request = clock.now(), evaluation.request
    for each in case.cut["units"]:
        unit = WorkUnit.objects.select_for_update(no_key=True).get(pk=each["unit"])
        claims_cut(unit=unit, pieces=[Piece(*piece) for piece in each["pieces"]])
        cut = {"unit": unit.name, "unit_id": unit.pk, "pieces": len(each["pieces"]), "lumis": each["lumis"], "file": case.name}
        emit_event("work_unit.cut", request, **cut)
        log.warning("claim cut", request_name=request.request_name, **cut)
    Workflow.objects.filter(pk=request.workflow.pk).update(cut_at=now)
    request.workflow.cut_at = now
    together = list(_together(case))
    validation_again({each.block_id for each in together})
    for each in together:
        each.state, each.ended_at, each.cut = CaseState.REMOVED, now, {**each.cut, "at": now.isoformat()}
    IntegrityCase.objects.bulk_update(together, ("state", "ended_at", "cut"))
    evaluation.written.append(f"claims cut for {case.name}")


def _together(case: IntegrityCase) -> QuerySet[IntegrityCase]:
    """The case, and those that are removed with it."""
    return IntegrityCase.objects.filter(Q(pk=case.pk) | Q(cut__with=case.pk), request=case.request_id)
