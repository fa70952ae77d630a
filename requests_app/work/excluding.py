"""Which input files an operator may take out of a request's work (error-handling 5.2).

A file of which anything is planned or done stays: its output is registered, and leaving it out would break the account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dags_app.models import WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.specs import LumiRanges
from requests_app.models import InputFile, Workflow
from requests_app.work.spec import spec_of


def files_taken(workflow: Workflow, lfns: Iterable[str]) -> set[str]:
    """Those of the files of which something is planned or done."""
    rows = InputFile.objects.filter(workflow=workflow, lfn__in=list(lfns))
    if not spec_of(workflow).splitting.algorithm.by_lumi:
        return set(rows.filter(claims__live=True).values_list("lfn", flat=True))
    claimed = _claimed_lumis(workflow)
    found = rows.values_list("lfn", "lumis")
    return {lfn for lfn, held in found if lumis.intersect(_ranges(held), claimed)}


def _claimed_lumis(workflow: Workflow) -> LumiRanges:
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, live=True, kind__contains=WorkUnitClaim.KIND_RUN_LUMIS)
    return lumis.from_intervals((claim.run.lower, claim.span.lower, claim.span.upper - 1) for claim in claims.iterator())


def _ranges(held: Mapping[str, Iterable[tuple[int, int]]]) -> LumiRanges:
    return lumis.from_intervals((int(run), first, last) for run, spans in held.items() for first, last in spans)
