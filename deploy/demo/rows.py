"""What WMS2's own rows say, through the Django ORM. Import only after ``django.setup()``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.db import connection
from django.db.models import Case, Count, Exists, F, OuterRef, Q, Sum, Value, When

from dags_app.models import DAG, LIVE_DAG, WorkUnit, WorkUnitClaim, WorkUnitState
from dags_app.planning.measured import TARGET_WALL_SECONDS
from deploy.demo import facts
from outputs_app.models import OPEN_EFFECT, REPORTS, Effect, OutputDataset, OutputFile
from requests_app.models import InputFile, Request, Round, Workflow
from requests_app.selectors.rounds import MeasuredRound, rounds_of
from requests_app.work import ledger
from wms2.errors import LedgerViolation


def status_details() -> list[facts.RequestLine]:
    """All requests, by name."""
    done = Count("workflow__work_units", filter=Q(workflow__work_units__state=WorkUnitState.DONE))
    rows = Request.objects.order_by("request_name").annotate(units=Count("workflow__work_units"), units_done=done)
    untold = Effect.objects.filter(request=OuterRef("pk"), state__in=OPEN_EFFECT, kind__in=REPORTS)
    rows = rows.annotate(stands=Case(When(Exists(untold), status="completed", then=Value("reporting")), default=F("status")))
    shown = ("request_name", "stands", "waiting_for", "units_done", "units", "hold_code", "last_error")
    return [facts.RequestLine(*row) for row in rows.values_list(*shown)]


def document(name: str) -> dict[str, Any]:
    """The request's document as it came."""
    data: dict[str, Any] = Request.objects.values_list("request_data", flat=True).get(request_name=name)
    return data


def workflow_of(name: str) -> Workflow:
    """The request's workflow."""
    return Workflow.objects.get(request__request_name=name)


def dataset_names(workflow: Workflow) -> list[tuple[str, str]]:
    """(dataset, step) of every kept output."""
    return list(OutputDataset.objects.filter(workflow=workflow).order_by("name").values_list("name", "step"))


def planned(workflow: Workflow) -> list[facts.Planned]:
    """What the jobs of the done units were to generate, read from the files in the DAG directories."""
    jobs = []
    for unit in WorkUnit.objects.filter(workflow=workflow, state=WorkUnitState.DONE).select_related("dag").order_by("id"):
        text = json.loads((Path(unit.dag.submit_dir) / unit.name / "unit.json").read_text())
        for job in text["jobs"]:
            made = job["generate"]
            if made is not None:
                numbers = (made["run"], made["first_event"], made["last_event"], made["first_lumi"], made["events_per_lumi"])
                jobs.append(facts.Planned(*numbers))
    return jobs


def lost_numbers(workflow: Workflow) -> int:
    """Event numbers of generation work that failed for good; they are never given out again."""
    claims = WorkUnitClaim.objects.filter(unit__workflow=workflow, live=False, kind=WorkUnitClaim.KIND_GENERATED)
    return claims.aggregate(total=Sum("events"))["total"] or 0


def excluded_files(workflow: Workflow) -> frozenset[str]:
    """LFNs of input files that are left out with a reason in their rows."""
    rows = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=False)
    return frozenset(rows.values_list("lfn", flat=True))


def dags(workflow: Workflow) -> tuple[facts.DagRow, ...]:
    """Every submission."""
    return tuple(
        facts.DagRow(str(dag.pk), dag.status, dag.dagman_cluster_id, dag.status in LIVE_DAG)
        for dag in DAG.objects.filter(workflow=workflow).order_by("created_at")
    )


def rounds(workflow: Workflow) -> tuple[facts.RoundRow, ...]:
    """Those of an adaptive request; of another none."""
    return tuple(map(_round, rounds_of(workflow))) if workflow.request.adaptive else ()


def _round(picture: MeasuredRound) -> facts.RoundRow:
    sizing, steps = picture.row.sizing, [step.row for step in picture.steps]
    jobs = max((step.jobs for step in steps), default=0)
    wall = sum(step.wall_seconds / step.jobs for step in steps)
    core_seconds = jobs * wall * sizing["cores"]
    lengths = [step.spreads["job_seconds"] for step in picture.steps]
    return facts.RoundRow(
        sizing["cores"],
        sizing["memory_mb"],
        sizing["splitting"]["events_per_job"],
        jobs,
        max((step.spreads["slot_rss_mb"].p95 for step in picture.steps), default=0.0),
        wall / TARGET_WALL_SECONDS - 1,
        frozenset((decision.what, decision.bound) for decision in picture.decisions if decision.bound),
        " ".join(f"{step.processes}x{step.threads}" for step in steps),
        _merged(picture.row),
        sum(step.cpu_seconds for step in steps) / core_seconds if core_seconds else 0.0,
        max(step.events_read for step in steps) / core_seconds * 3600 if core_seconds else 0.0,
        max(((each.p95 - each.p50) / 1.645 / each.p50 for each in lengths), default=0.0),
    )


def _merged(row: Round) -> tuple[int, ...]:
    """Bytes of each unit in the largest output dataset."""
    made = OutputFile.objects.filter(unit__round=row).values_list("dataset", "unit").annotate(size=Sum("size_bytes"))
    by_dataset: dict[int, list[int]] = {}
    for dataset, _, size in made.order_by("unit"):
        by_dataset.setdefault(dataset, []).append(size)
    return tuple(max(by_dataset.values(), key=sum, default=[]))


def open_effects(name: str) -> tuple[str, ...]:
    """Registrations that are still owed."""
    rows = Effect.objects.filter(request__request_name=name, state__in=OPEN_EFFECT).order_by("id")
    return tuple(f"{effect.key} ({effect.state}) {effect.last_error}".strip() for effect in rows)


def units_not_done(workflow: Workflow) -> tuple[str, ...]:
    """Work units that are neither done nor given up."""
    rows = WorkUnit.objects.filter(workflow=workflow, state__in=(WorkUnitState.PLANNED, WorkUnitState.DONE_UNACCOUNTED))
    return tuple(f"{unit.name} ({unit.state}) {unit.problem}".strip() for unit in rows.order_by("id"))


def account(workflow: Workflow) -> facts.Ledger:
    """The ledger as WMS2 counts it, with its own check of the sums."""
    try:
        counted = ledger.ledger_of(workflow)
        ledger.ledger_check(counted)
    except LedgerViolation as error:
        return facts.Ledger("events", 0, 0, 0, 0, 0, str(error))
    if counted.by_lumi:
        gone, left = counted.excluded_lumis + counted.refused_lumis, counted.left_lumis + counted.attempted_lumis
        return facts.Ledger("lumis", counted.all_lumis, counted.done_lumis, counted.planned_lumis, gone, left)
    if counted.all_files:
        left = counted.left_files + counted.attempted_files
        numbers = (counted.all_files, counted.done_files, counted.planned_files, counted.excluded_files, left)
        return facts.Ledger("files", *numbers)
    numbers = (counted.all_events, counted.done_events, counted.planned_events, counted.excluded_events, counted.left_events)
    return facts.Ledger("events", *numbers)


def constraints() -> frozenset[str]:
    """Names of constraints, unique indexes and triggers in force that really stand in the database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname FROM pg_constraint UNION SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE i.indisunique AND i.indisvalid UNION SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A')"
        )
        return frozenset(name for (name,) in cursor.fetchall())
