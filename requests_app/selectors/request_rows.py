"""What the page of a request says of it, of its workflow and of WMS2, read by one statement (``wms2.runtime.combined_query``).

Rows that belong to others are given those, so that nothing is read for them again: DAGs their round and schedd, effects their
block, datasets their comparison, harvestings their job.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Count, DateTimeField, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now

from dags_app.counts import UnitSum, UnitTable, unit_sums
from dags_app.models import DAG, FailureGroup, FailureLog, SiteJob, SizingDecision, StepMeasurement, WorkUnit
from outputs_app.models import (
    OPEN_CASE,
    OPEN_EFFECT,
    BlockValidation,
    BlockWorkUnit,
    Comparison,
    Effect,
    EffectState,
    IntegrityCase,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.selectors import STUCK, drift_unsettled
from requests_app.models import LEADER_LEASE, Harvest, Request, RequestTransition, Round, Workflow
from requests_app.selectors.lifecycle import leases_known
from requests_app.selectors.parts import leftovers_counted
from requests_app.selectors.progress_charts import stops_of
from sites_app.models import Pool, Schedd
from wms2.models import AuditEntry, Worker, WorkerPool
from wms2.runtime.combined_query import CombinedQuery, composed_once

MOST_TRANSITIONS, MOST_EFFECTS, MOST_DRIFT, MOST_AUDIT, MOST_DAGS, MOST_HARVESTS, MOST_DECISIONS = 200, 100, 50, 50, 50, 100, 100
Rows = Mapping[str, list[Any]]
#: In place of a request's id and name, and of its workflow's id.
_REQUEST, _WORKFLOW, _NAME = uuid.UUID(int=1), uuid.UUID(int=2), "its name"


def request_rows(request: Request, workflow: Workflow | None) -> Rows:
    """By name; of effects and drift one more than are shown."""
    marks = {_REQUEST: request.pk, _NAME: request.request_name, _WORKFLOW: workflow.pk if workflow else None}
    found = (_with_workflow() if workflow else _alone()).rows(marks)
    if workflow:
        _join(found, workflow)
    return found


@composed_once
def _alone() -> CombinedQuery:
    return CombinedQuery(**_of_request(Request(pk=_REQUEST, request_name=_NAME)))


@composed_once
def _with_workflow() -> CombinedQuery:
    request = Request(pk=_REQUEST, request_name=_NAME)
    return CombinedQuery(**_of_request(request), **_of_workflow(request, Workflow(pk=_WORKFLOW, request=request)))


def _of_request(request: Request) -> dict[str, QuerySet[Any]]:
    versions = Request.objects.filter(previous_version_request=request).order_by("created_at")
    return {
        "effects": _effects(request)[: MOST_EFFECTS + 1],
        "effect_states": Effect.objects.filter(request=request).order_by().values("state").annotate(number=Count("id")),
        "drift": drift_unsettled(request.pk)[: MOST_DRIFT + 1],
        "cases": IntegrityCase.objects.filter(request=request, state__in=OPEN_CASE)
        .order_by()
        .values("request_id")
        .annotate(number=Count("id")),
        "depends_on": request.depends_on.order_by("request_name").values("request_name"),
        "dependents": Request.objects.filter(depends_on=request).order_by("request_name").values("request_name"),
        "next_versions": versions.values("request_name"),
        "transitions": RequestTransition.objects.filter(request=request).order_by("-id")[:MOST_TRANSITIONS],
        "stops": stops_of(request).values("at", "to_status"),
        "audit": AuditEntry.objects.filter(target_type="request", target=request.request_name).order_by("-id")[:MOST_AUDIT],
        "leases": leases_known(LEADER_LEASE),
        "pools": WorkerPool.objects.all(),
        "workers": Worker.objects.all(),
    }


def _of_workflow(request: Request, workflow: Workflow) -> dict[str, QuerySet[Any]]:
    dags = DAG.objects.filter(workflow=workflow).order_by("-created_at", "-fence")
    rounds = Round.objects.filter(workflow=workflow).order_by("-index")[:MOST_DAGS]
    submitted = Subquery(dags.values("submitted_at")[:1], output_field=DateTimeField())
    units = WorkUnit.objects.filter(workflow=workflow).order_by().annotate(round_index=F("round__index"))
    # over the index of invalid files
    invalid = OutputFile.objects.filter(dataset=OuterRef("pk"), validity=Validity.INVALID).order_by().values("dataset")
    invalid_files = Coalesce(Subquery(invalid.annotate(number=Count("*")).values("number")), 0)
    return {
        "dags": dags[:MOST_DAGS],
        "rounds": rounds,
        "schedds": Schedd.objects.order_by("pk"),
        "schedd_pools": Pool.objects.all(),
        # as ``workflow_progress`` has them, since the newest DAG was submitted
        "unit_sums": units.values("round_id", "round_index", "site", "state").annotate(**unit_sums(Coalesce(submitted, Now()))),
        "failure_logs": FailureLog.objects.filter(directory_id__in=dags.values("directory_id")[:1]),
        "failures": FailureGroup.objects.filter(workflow=workflow)
        .order_by("id")
        .values("category", "code", "site", "step", "attempts", "given_up", "rounds"),
        "blocks": ProcessingBlock.objects.filter(workflow=workflow).defer("failure_context"),
        "units_done": BlockWorkUnit.objects.filter(block__workflow=workflow, done=True)
        .order_by()
        .values("block_id")
        .annotate(number=Count("id")),
        "validations": BlockValidation.objects.filter(block__workflow=workflow).order_by().values("block_id")[:1],
        "datasets": OutputDataset.objects.filter(workflow=workflow)
        .defer("registration")
        .order_by("name")
        .annotate(invalid_files=invalid_files),
        "comparisons": Comparison.objects.filter(dataset__workflow=workflow),
        "measurements": StepMeasurement.objects.filter(round__in=rounds.values("pk")),
        "decisions": SizingDecision.objects.filter(dag__in=dags.values("pk")[:1])[:MOST_DECISIONS],
        "leftovers": leftovers_counted(request),
        "harvests": Harvest.objects.filter(request_id=request.request_name).order_by("-state", "dataset", "run")[:MOST_HARVESTS],
        "site_jobs": SiteJob.objects.filter(harvests__request_id=request.request_name).order_by().distinct(),
    }


def unit_table_of(workflow: Workflow, found: Rows) -> UnitTable:
    """Of these rows."""
    names = ("round_id", "round_index", "site", "state", "units", "jobs_sum", "events_sum", "units_since", "events_since")
    failed = Counter[str]()
    for group in found["failures"]:
        failed[group["site"]] += group["attempts"]
    sums = tuple(UnitSum(*(row[name] for name in names)) for row in found["unit_sums"])
    return UnitTable(workflow.pk, sums, failed, {row.pk: row.attempts for row in found["failure_logs"]})


def _effects(request: Request) -> Any:
    """Those that need an operator first, then by their next attempt; those that were discarded last."""
    return (
        Effect.objects.filter(request=request, state__in=(*OPEN_EFFECT, EffectState.DISCARDED))
        .annotate(part_done=KT("result__done"), part_of=KT("result__of"))
        .defer("payload", "result")
        .alias(stuck=Q(state__in=STUCK), over=Q(state=EffectState.DISCARDED))
        .order_by("over", "-stuck", "next_attempt_at", "id")
    )


def _join(found: Rows, workflow: Workflow) -> None:
    workflow.rows_read = found
    for dag in found["dags"]:
        dag.workflow = workflow
    give_related(found["dags"], "round", found["rounds"])
    give_related(found["schedds"], "pool", found["schedd_pools"])
    give_related(found["dags"], "schedd", found["schedds"])
    give_related(found["effects"], "block", found["blocks"])
    give_related(found["harvests"], "job", found["site_jobs"])
    comparisons = {row.dataset_id: row for row in found["comparisons"]}
    for dataset in found["datasets"]:
        dataset._state.fields_cache["comparison"] = comparisons.get(dataset.pk)


def give_related(rows: Iterable[Any], name: str, others: Iterable[Any]) -> None:
    """The others that they name; what is not among these is read when it is asked for."""
    known = {other.pk: other for other in others}
    for row in rows:
        key = getattr(row, f"{name}_id")
        if key in known:
            setattr(row, name, known[key])
