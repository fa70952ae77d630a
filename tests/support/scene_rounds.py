"""A request whose rounds are sized by what those before measured, as rows: what WMS2 itself would decide from these jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from dags_app import histogram
from dags_app.models import DAG, DAGStatus, StepMeasurement, WorkUnit, WorkUnitState
from dags_app.planning.sizing import sizes_of, sizes_to_json
from dags_app.planning.specs import GenerationSpec, ResourceSpec, SplittingAlgo, SplittingSpec, WorkflowSpec
from dags_app.services.measurements import decisions_record
from requests_app.models import Request, RequestStatus, Round, Workflow
from requests_app.work.sizing import round_sizing, stored_sizing
from tests.support.rows import dag_row, generation_spec, output_spec, request_row, round_row, workflow_row

NAME = "cmsunified_task_TOP-RunIII2024Summer24wmLHEGS-00217__v1_T_260902_101112_31"
#: Seconds of one job's step around its middle, in shares of it.
_SPREAD = (0.93, 0.97, 1.0, 1.0, 1.02, 1.05, 1.09, 1.21)


def measured(
    round_: Round, step: str, *, seconds: float, cores: float, rss_mb: float, events: int, times: int = 1, **fields: Any
) -> StepMeasurement:
    """``times`` eight jobs of a step: each read so many events in about so many seconds, and kept so many cores busy.

    ``sizes``: output module -> bytes per event.
    """
    walls = [seconds * share for share in _SPREAD] * times
    rss = [rss_mb * (1 + (share - 1) / 3) for share in _SPREAD] * times
    processes, threads, sizes = fields.get("processes", 1), fields.pop("threads", 8), fields.pop("sizes", {})
    values = {
        "job_seconds": walls,
        "seconds_per_event": [wall / events for wall in walls],
        "rss_mb": [each / processes for each in rss],
        "slot_rss_mb": rss,
        "cpu_efficiency": [cores / (processes * threads)] * len(walls),
    }
    given = {
        "threads": threads,
        "processes": processes,
        "jobs": len(walls),
        "events_read": events * len(walls),
        "events_written": events * len(walls),
        "lumis_read": events * len(walls) // 100,
        "wall_seconds": sum(walls),
        "cpu_seconds": sum(walls) * cores,
        "bytes_written": {module: each * events * len(walls) for module, each in sizes.items()},
        "histograms": {name: histogram.counted(each) for name, each in values.items()},
    }
    return StepMeasurement.objects.create(round=round_, step=step, **given | fields)


def adaptive_spec(name: str = NAME) -> WorkflowSpec:
    """Generation of one core, then reconstruction of eight, as a requester guessed them."""
    spec = generation_spec(name, events=2_000_000, outputs=(output_spec("TTTo2L2Nu", "AODSIM", "Reco", "AODSIMoutput"),))
    gen = replace(spec.steps[0], threads=8)
    reco = replace(gen, number=2, name="Reco", input_step="GenSim", input_module="RAWSIMoutput", output_modules=("AODSIMoutput",))
    return replace(
        spec,
        steps=(gen, reco),
        resources=ResourceSpec(cores=8, memory_mb=16_000, time_per_event_seconds=12.0, size_per_event_kb=900),
        splitting=SplittingSpec(SplittingAlgo.EVENT_BASED, events_per_job=500),
        generation=GenerationSpec(run=1, first_event=1, first_lumi=1, events=2_000_000, events_per_job=500, events_per_lumi=100),
    )


def adaptive_request(status: RequestStatus = RequestStatus.ACTIVE, **fields: Any) -> Request:
    """Without a round."""
    given = {"request_name": NAME, "requestor": "cmsunified", "campaign": "RunIII2024Summer24", "adaptive": True}
    request = request_row(status, **given | fields)
    workflow_row(request, adaptive_spec(request.request_name))
    return request


def round_next(request: Request, *, units: int, done: int = 0, at: datetime | None = None) -> DAG:
    """The next round as it would be sized now, with units of which some are done; the one before is closed."""
    workflow: Workflow = request.workflow
    at = at or timezone.now()
    workflow.rounds.update(closed_at=at)
    DAG.objects.filter(workflow=workflow).update(status=DAGStatus.COMPLETED, completed_at=at)
    sizing, _ = round_sizing(request)
    round_ = round_row(workflow, workflow.rounds.count(), sizing=stored_sizing(sizing))
    sizes = sizes_to_json(sizes_of(sizing.workflow, sizing.profile))
    dag = dag_row(workflow, round=round_, total_work_units=units, units_done=done, sizes=sizes, submitted_at=at)
    assert sizing.workflow.generation is not None
    events = sizing.workflow.generation.events_per_job * sizing.jobs_per_work_unit
    rows = [
        WorkUnit(
            workflow=workflow, round=round_, dag=dag, index=index, name=f"mg_{index:06d}", jobs=sizing.jobs_per_work_unit,
            events=events, site="T1_US_FNAL",
        )
        for index in range(units)
    ]  # fmt: skip
    for row in rows[:done]:
        row.state, row.manifest_sha256, row.fence, row.done_at = WorkUnitState.DONE, "a" * 64, dag.fence, at
    WorkUnit.objects.bulk_create(rows)
    decisions_record(dag=dag, decisions=sizing.decisions, profile_version=round_.index)
    return dag


def three_rounds() -> Request:
    """A small first round, which told that generation leaves most cores idle; a second with pinned cores; a third that runs."""
    now, request = timezone.now(), adaptive_request()
    first = round_next(request, units=1, done=1, at=now - timedelta(hours=30)).round
    measured(first, "GenSim", seconds=1900, cores=1.1, rss_mb=2300, events=500, sizes={"RAWSIMoutput": 700_000})
    measured(first, "Reco", seconds=700, cores=5.9, rss_mb=5100, events=500, sizes={"AODSIMoutput": 60_000})
    request.overrides = {"cores": 4}
    request.save(update_fields=["overrides"])
    dag = round_next(request, units=10, done=10, at=now - timedelta(hours=22))
    planned = dag.round.sizing
    events = planned["splitting"]["events_per_job"]
    second: dict[str, Any] = {"events": events, "times": 10 * planned["jobs_per_work_unit"] // 8}
    generated = {"processes": 4, "threads": 1, "sizes": {"RAWSIMoutput": 700_000}, **second}
    measured(dag.round, "GenSim", seconds=1.3 * events, cores=3.4, rss_mb=6100, **generated)
    measured(dag.round, "Reco", seconds=2.1 * events, cores=3.6, rss_mb=4300, threads=4, sizes={"AODSIMoutput": 61_000}, **second)
    round_next(request, units=40, at=now - timedelta(hours=2))
    return request
