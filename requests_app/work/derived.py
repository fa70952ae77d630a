"""A request's work divided between it and the one that is derived from it (ADR 0024).

What the old one has ever claimed, or left out, stays its own and is inherited in the new one's account; what it has not used
becomes the new one's and is excluded in the old one's. So each piece of work is left in one of the two at most. Rows only, in
the caller's transaction.
"""

from __future__ import annotations

from dataclasses import replace

from django.db.models import Exists, OuterRef, Q

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.specs import ExclusionKind, LumiRanges
from outputs_app.blocks.ownership import lumi_next
from requests_app.models import InputFile, Workflow
from requests_app.work.input_lumis import lumis_hand_over
from requests_app.work.ledger import ledger_of
from requests_app.work.remaining import event_next
from requests_app.work.spec import spec_of, spec_to_json
from wms2.runtime import clock
from wms2.runtime.sql import sql_rows

_COLUMNS = ", ".join(str(field.column) for field in InputFile._meta.concrete_fields if field.name not in ("id", "workflow"))
_COPY = f"INSERT INTO input_files (workflow_id, {_COLUMNS}) SELECT %s, {_COLUMNS} FROM input_files WHERE workflow_id = %s"  # noqa: S608
_NOT_EXCLUDED = {"excluded_at": None, "excluded_reason": "", "excluded_by": "", "excluded_kind": ""}


def work_hand_over(old: Workflow, new: Workflow, *, failed: bool) -> None:
    """Divide it; ``new`` has been made like ``old`` and owns its datasets.

    Args:
        failed: also what units of ``old`` had claimed and gave back; it plans nothing of it any more.
    """
    spec, all_events = spec_of(old), old.requested_events
    if spec.generation is not None:
        new.requested_events = ledger_of(old).left_events
        new.next_first_lumi = max(old.next_first_lumi, lumi_next(request_id=new.request.pk))
        new.next_first_event = event_next(old)
        begin = {"first_event": new.next_first_event, "first_lumi": new.next_first_lumi, "events": new.requested_events}
        new.spec = spec_to_json(replace(spec_of(new), generation=replace(spec.generation, **begin)))
    else:
        if not spec.splitting.algorithm.by_lumi:
            _files_give(old, new, failed=failed)
        sql_rows(_COPY, [new.pk, old.pk])
        files, why = InputFile.objects.filter(workflow=new), f"it is the business of {old.request_id}"
        rest = Q(excluded_at__isnull=False) if spec.splitting.algorithm.by_lumi else ~Q(excluded_kind=ExclusionKind.DERIVED)
        files.filter(rest).update(**_excluded(ExclusionKind.INHERITED, why))
        files.filter(excluded_kind=ExclusionKind.DERIVED).update(**_NOT_EXCLUDED)
        if spec.splitting.algorithm.by_lumi:
            lumis_hand_over(old, new, failed=failed)
            InputFile.objects.filter(workflow__in=(old, new), waiting_since__isnull=False).update(
                waiting_since=None, waiting_reason=""
            )  # planning says anew
        new.requested_events = ledger_of(new).left_events
    new.inherited_events = old.inherited_events + all_events - new.requested_events
    new.save()
    old.requested_events = max(0, all_events - new.requested_events)
    if spec.generation is not None:  # which the recount asks of it
        old.spec = spec_to_json(replace(spec, generation=replace(spec.generation, events=old.requested_events)))
    old.input_closed_at = old.input_closed_at or clock.now()
    old.save(update_fields=["requested_events", "spec", "input_closed_at"])


def _excluded(kind: ExclusionKind, why: str) -> dict[str, object]:
    out = {"excluded_kind": kind, "excluded_reason": why, "excluded_at": clock.now(), "excluded_by": "derive"}
    return {**out, "waiting_since": None, "waiting_reason": ""}


def _files_give(old: Workflow, new: Workflow, *, failed: bool) -> None:
    """Whole files: one of which anything is claimed stays, and so does one that shares a lumi with one that stays: two requests
    may not write the same lumi into a dataset (ADR 0017)."""
    claims = WorkUnitClaim.objects.filter(input_file=OuterRef("pk"), **({"live": True} if failed else {}))
    rows = InputFile.objects.filter(workflow=old).exclude(excluded_kind=ExclusionKind.UNWANTED)
    unused: dict[int, LumiRanges] = {}
    stay: list[LumiRanges] = []
    for pk, stored, taken in rows.annotate(taken=Exists(claims) | Q(excluded_at__isnull=False)).values_list(
        "pk", "lumis", "taken"
    ):
        if taken:
            stay.append(lumis.from_json(stored))
        else:
            unused[pk] = lumis.from_json(stored)
    while stay:
        held = lumis.union(*stay)
        stay = [unused.pop(pk) for pk in [pk for pk, mine in unused.items() if lumis.intersect(mine, held)]]
    out = _excluded(ExclusionKind.DERIVED, f"taken over by {new.request_id}")
    InputFile.objects.filter(pk__in=unused).update(**out)
