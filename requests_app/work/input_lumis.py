"""The input of a request split by lumi, as lumis: which it wants, and which no file can provide (ADR 0007).

Owns the InputLumis rows. They are the union over files, so a lumi that lies in several files is one piece of work; everything
is intervals, and costs go with the number of files and intervals, never of lumis. What is left of them, and counting, is in
``lumi_account.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone
from psycopg.types.range import Int8Range

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.selection import WantedLumis
from dags_app.planning.specs import InputSpec, LumiRanges, RefusedLumi
from requests_app.models import InputFile, InputLumis, LumiFate, Workflow
from wms2.runtime.copying import copy_rows
from wms2.runtime.sql import sql_rows

_INTERVALS = tuple[int, int, int]
#: What stays when the rows are made anew from the files.
_FIXED = (LumiFate.REFUSED, LumiFate.INHERITED, LumiFate.DERIVED)
_UNION = """
SELECT run, lower(part), upper(part) - 1 FROM (
  SELECT claim.run, unnest(range_agg(int8range(claim.first, claim.last, '[]'))) AS part
  FROM work_unit_claims claim JOIN work_units unit ON unit.id = claim.unit_id
  WHERE unit.workflow_id = %s AND claim.kind = %s AND claim.live = %s
  GROUP BY 1) parts
"""


def lumis_rebuild(workflow: Workflow, spec: InputSpec) -> None:
    """Make the rows anew from the files as they are; in the caller's transaction.

    Lumis that are claimed stay wanted even if all their files are excluded by now: they are done, or being done.
    """
    wanted = WantedLumis(spec)
    kept: list[_INTERVALS] = []
    out: list[_INTERVALS] = []
    rows = InputFile.objects.filter(workflow=workflow).values_list("lumis", "excluded_at")
    for stored, excluded_at in rows.iterator(chunk_size=2000):
        mine = wanted.among(lumis.from_json(stored))
        (kept if excluded_at is None else out).extend(lumis.iterate(mine))
    fixed = _ranges(workflow, *_FIXED)
    todo, given_up = lumis.from_intervals(kept), lumis.from_intervals(out)
    todo = lumis.union(todo, lumis.intersect(given_up, lumis_claimed(workflow, live=True)))
    given_up = lumis.subtract(lumis.subtract(given_up, todo), fixed)
    InputLumis.objects.filter(workflow=workflow).exclude(fate__in=_FIXED).delete()
    _insert(workflow, lumis.subtract(todo, fixed), LumiFate.WANTED)
    _insert(workflow, given_up, LumiFate.EXCLUDED)


def lumis_refuse(workflow: Workflow, refused: Iterable[RefusedLumi]) -> None:
    """Record lumis that no job may take, neighbours with the same reason in one row; in the caller's transaction.

    The rows of wanted lumis still hold them until ``lumis_rebuild``.
    """
    known = _ranges(workflow, LumiFate.REFUSED)
    by_reason: dict[str, list[tuple[int, int]]] = {}
    for each in refused:
        by_reason.setdefault(each.reason, []).append((each.run, each.lumi))
    for reason, pairs in by_reason.items():
        new = lumis.subtract(lumis.from_pairs(pairs), known)
        known = lumis.union(known, new)
        _insert(workflow, new, LumiFate.REFUSED, reason)


def lumis_out_of_reach(workflow: Workflow) -> LumiRanges:
    """These, and what the request that it was derived from keeps: a share of such a lumi cannot be read any more."""
    return lumis.union(lumis_claimed(workflow, live=True), _ranges(workflow, LumiFate.INHERITED))


def lumis_hand_over(old: Workflow, new: Workflow, *, failed: bool) -> None:
    """What no unit of ``old`` has claimed, or holds now (``failed``), becomes ``new``'s; all else is inherited there."""
    listed, wanted, mine = _ranges(old, *LumiFate), _ranges(old, LumiFate.WANTED), lumis_claimed(old, live=True)
    if not failed:
        mine = lumis.union(mine, lumis_claimed(old, live=False))
    unused = lumis.subtract(wanted, mine)
    InputLumis.objects.filter(workflow=old, fate=LumiFate.WANTED).delete()
    _insert(old, lumis.subtract(wanted, unused), LumiFate.WANTED)
    _insert(old, unused, LumiFate.DERIVED)
    _insert(new, unused, LumiFate.WANTED)
    _insert(new, lumis.subtract(listed, unused), LumiFate.INHERITED)


def lumis_claimed(workflow: Workflow, *, live: bool) -> LumiRanges:
    """What work units hold or have done (``live``), which no other may take; or have given back."""
    return lumis.from_intervals(sql_rows(_UNION, [workflow.pk, WorkUnitClaim.KIND_RUN_LUMIS, live]))


def _ranges(workflow: Workflow, *fates: LumiFate) -> LumiRanges:
    rows = InputLumis.objects.filter(workflow=workflow, fate__in=fates).values_list("run", "span")
    return lumis.from_intervals((run, span.lower, span.upper - 1) for run, span in rows)


def _insert(workflow: Workflow, ranges: LumiRanges, fate: LumiFate, reason: str = "") -> None:
    now = timezone.now()
    rows = (
        (workflow.pk, run, Int8Range(first, last, "[]"), fate.value, reason, now) for run, first, last in lumis.iterate(ranges)
    )
    copy_rows(InputLumis, ("workflow", "run", "span", "fate", "reason", "created_at"), rows)
