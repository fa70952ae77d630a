"""How many lumis the outputs of a request will have in DBS when all its work is done: ReqMgr2's ``TotalInputLumis``, by which CMS
closes requests out (docs/coexistence.md). Inherited work is another request's.
"""

from __future__ import annotations

from django.db.models import F, Sum

from dags_app.models import DAG, WorkUnitClaim
from dags_app.planning import lumis
from dags_app.planning.selection import WantedLumis
from dags_app.planning.specs import ExclusionKind, InputSpec
from requests_app.models import InputFile, Workflow
from requests_app.work.ledger import Ledger
from requests_app.work.sizing import as_planned
from requests_app.work.spec import spec_of


def lumis_expected(workflow: Workflow, dag: DAG, ledger: Ledger) -> int:
    """By the work as it is now; ``dag`` is the newest round's."""
    wanted = spec_of(workflow).input
    if wanted is None:
        return _of_generation(workflow, dag, ledger)
    return ledger.all_lumis - ledger.inherited_lumis if ledger.by_lumi else _of_files(workflow, wanted)


def _of_generation(workflow: Workflow, dag: DAG, ledger: Ledger) -> int:
    """Those of all units that are done or planned, and of what is left, cut as in the newest round."""
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, live=True, kind=WorkUnitClaim.KIND_GENERATED_LUMIS)
    claimed = claims.aggregate(total=Sum(F("last") - F("first") + 1))["total"] or 0
    made = as_planned(dag).generation
    return claimed + (-(-ledger.left_events // min(made.events_per_lumi, made.events_per_job, made.events)) if made else 0)


def _of_files(workflow: Workflow, wanted: InputSpec) -> int:
    """The wanted lumis of all files, each once in however many files it lies; files that cannot be read count too."""
    selection = WantedLumis(wanted)
    files = InputFile.objects.filter(workflow=workflow).exclude(excluded_kind=ExclusionKind.INHERITED)
    held = (selection.among(lumis.from_json(each)) for each in files.values_list("lumis", flat=True).iterator(chunk_size=2000))
    return lumis.count(lumis.from_intervals(interval for ranges in held for interval in lumis.iterate(ranges)))
