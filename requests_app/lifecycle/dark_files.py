"""Merged files that Rucio does not know: CMS's consistency checks delete what lies dark for 25 days, so an alert comes before."""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial

from django.db import transaction

from dags_app.models import DAG, WorkUnit, WorkUnitState
from outputs_app.models import Effect, EffectKind, EffectState
from requests_app.alerts import alert, alert_off, alerted, report_broken
from requests_app.models import Request, RequestStatus
from wms2.runtime import clock
from wms2.runtime.passes import row_by_itself
from wms2.web.formatting import counted

CODE = "dark_files"
#: Deleted at 25: that leaves a person eleven.
DARK_DAYS = 14


def dark_files_check() -> int:
    """Alert on requests with units that have a manifest for so long, and files that are in no block of Rucio; of how many."""
    long_ago = clock.now() - timedelta(days=DARK_DAYS)
    found = defaultdict[Request, list[str]](list)
    waiting = Effect.objects.filter(kind=EffectKind.RUCIO_FILES, created_at__lte=long_ago)
    for effect in waiting.exclude(state__in=(EffectState.DONE, EffectState.DISCARDED)).select_related("request"):
        with _by_itself(effect.request):
            number = len(effect.payload.get("units", ())) or 1
            found[effect.request].append(
                f"{counted(number, 'work unit')} whose registration is {effect.state}: {effect.last_error}"
            )
    units = WorkUnit.objects.filter(state=WorkUnitState.DONE_UNACCOUNTED, problem_since__lte=long_ago)
    for unit in units.select_related("workflow__request"):
        with _by_itself(unit.workflow.request):
            found[unit.workflow.request].append(f"{unit.name}, done but unaccounted: {unit.problem}")
    held = Request.objects.filter(status=RequestStatus.HELD, status_since__lte=long_ago)
    dags = DAG.objects.filter(workflow__request__in=held, round__closed_at__isnull=True).select_related("workflow__request")
    for dag in dags.defer("workflow__request__request_data"):
        with _by_itself(dag.workflow.request):
            accounted = WorkUnit.objects.filter(round_id=dag.round_id, state=WorkUnitState.DONE).count()  # by its rescues perhaps
            done = int(dag.observed.get("nodes_done") or 0) - accounted
            if done > 0:
                found[dag.workflow.request].append(f"{counted(done, 'work unit')} of DAG {dag.pk}, held before it was accounted")
    for request, why in found.items():
        message = f"merged files are not in Rucio for {DARK_DAYS} days, and are deleted at 25 days: {why[0]}"
        with _by_itself(request), transaction.atomic():
            alert(request, "dark_files", message if len(why) == 1 else f"{message}; and {len(why) - 1} more")
    for request in alerted(CODE).exclude(pk__in=[request.pk for request in found]):
        with _by_itself(request), transaction.atomic():
            alert_off(request, CODE)
    return len(found)


def _by_itself(request: Request) -> AbstractContextManager[None]:
    return row_by_itself("dark files", request, partial(report_broken, pk=request.pk))
