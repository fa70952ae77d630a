"""Partial production: after a share of its work a request steps back in priority and goes on from its rescue. Spec 6.2.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dags_app.models import DAG, DAGKind
from dags_app.services.stop import halt_file
from requests_app.models import Request, RequestStatus, RequestTransition, StopIntent
from requests_app.services import (
    Received,
    request_abort,
    request_hold,
    request_import,
    request_release,
    request_restart,
    request_set_priority,
    request_set_steps,
)
from requests_app.work.ledger import ledger_of
from requests_app.work.production_steps import ProductionStep, share_done, steps_passed, steps_read
from tests.support.rows import request_row
from tests.support.scripted import documents
from tests.support.scripted.branching import once
from tests.support.scripted.progress import cycles, fresh, status, work_done
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.errors import DocumentRefused, InvalidTransition
from wms2.models import AuditEntry

HERE = "tests/requests_app/work/test_production_steps.py"
S = RequestStatus
BY: dict[str, Any] = {"actor": "olga", "reason": "because"}
STEPS = [{"fraction": 0.2, "priority": 80_000}, {"fraction": 0.5, "priority": 50_000}]
UNITS = 10


WORLD = {"MAX_WORK_UNITS_PER_DAG": str(UNITS)}


@once
def started(world: World, steps: list[dict[str, Any]], units: int = UNITS) -> tuple[Request, Job]:
    """So many units run, at priority 100,000."""
    request = request_import(
        document=documents.generation(100 * units), request_name=None, actor="olga", asked=Received(production_steps=steps)
    )
    world.cycle()
    assert status(request) is S.ACTIVE
    return request, world.job_of(request)


def finish_units(world: World, job: Job, number: int) -> None:
    for unit in job.open_nodes[:number]:
        world.schedd.unit_done(job, unit)
    cycles(world, 1)


@once
def stopping(world: World, steps: list[dict[str, Any]]) -> tuple[Request, Job]:
    """A fifth is done; it is drained for its first step."""
    request, job = started(world, steps)
    finish_units(world, job, 2)
    assert (status(request), request.stop_intent) == (S.STOPPING, StopIntent.STEP)
    return request, job


def drained(world: World, request: Request, job: Job) -> Job:
    """What ran has finished; the next job of the request."""
    world.schedd.end(job, End.DRAINED)
    cycles(world, 4)
    return world.job_of(request)


@pytest.mark.django_db(transaction=True)
def test_at_each_step_the_request_stops_without_loss_and_goes_on_with_less_priority(world: World) -> None:
    request, job = started(world, STEPS)
    finish_units(world, job, 1)
    assert status(request) is S.ACTIVE, "a tenth is done, the step is at a fifth"
    finish_units(world, job, 1)
    assert (status(request), request.stop_intent) == (S.STOPPING, StopIntent.STEP)
    assert halt_file(DAG.objects.get(workflow__request=request)).exists(), "drained, not removed"
    assert job.live

    job = drained(world, request, job)
    assert (status(request), request.priority, request.production_steps) == (S.ACTIVE, 80_000, STEPS[1:])
    assert len(job.open_nodes) == 8, "what was done is not done again"
    finish_units(world, job, 3)
    assert status(request) is S.STOPPING
    job = drained(world, request, job)
    assert (status(request), request.priority, request.production_steps) == (S.ACTIVE, 50_000, [])
    assert len(job.open_nodes) == 5

    dags = DAG.objects.filter(workflow__request=request).order_by("fence")
    assert [(dag.kind, dag.job_priority) for dag in dags] == [
        (DAGKind.FRESH, 100_000), (DAGKind.STOP_RESCUE, 80_000), (DAGKind.STOP_RESCUE, 50_000),
    ]  # fmt: skip
    reported = (
        RequestTransition.objects.filter(request=request, to_status=S.STOPPING).order_by("id").values_list("reason", flat=True)
    )
    assert list(reported) == [
        "production step at 20.0%: 20.0% are done, the rest goes on with priority 80000",
        "production step at 50.0%: 50.0% are done, the rest goes on with priority 50000",
    ]
    new = request_restart(request=request, **BY)
    assert (new.priority, new.production_steps) == (100_000, STEPS), "as they stood before they were taken"


@pytest.mark.django_db(transaction=True)
def test_steps_that_few_units_pass_together_are_one(world: World) -> None:
    """Few units: a share is met by whole units only, and what is passed meanwhile counts too."""
    request, job = stopping(world, STEPS)
    for unit in job.open_nodes[:4]:
        world.schedd.unit_done(job, unit)
    drained(world, request, job)
    assert (request.refresh_from_db(), request.priority, request.production_steps) == (None, 50_000, [])


@pytest.mark.django_db(transaction=True)
def test_a_dag_that_ends_by_itself_while_it_is_drained_has_taken_its_step_too(world: World) -> None:
    request, job = started(world, STEPS[:1], 5)
    finish_units(world, job, 1)
    assert status(request) is S.STOPPING
    world.schedd.end(job, End.FINISHED)
    assert work_done(world, request)
    assert (request.priority, request.production_steps) == (80_000, [])
    assert len(world.schedd.jobs) == 1


@pytest.mark.django_db(transaction=True)
def test_nothing_is_stopped_for_a_step_when_no_unit_is_left_to_begin(world: World) -> None:
    request, job = started(world, [{"fraction": 0.95, "priority": 1}], 2)
    world.schedd.end(job, End.FINISHED)
    assert work_done(world, request)
    assert not RequestTransition.objects.filter(request=request, to_status=S.STOPPING).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "action", ["hold", pytest.param("abort", marks=pytest.mark.deep(f"{HERE}::test_a_stronger_verb_overtakes_a_step"))]
)
def test_a_stronger_verb_overtakes_a_step(world: World, action: str) -> None:
    request, _job = stopping(world, STEPS)
    (request_hold if action == "hold" else request_abort)(request=request, **BY)
    cycles(world, 4)
    assert status(request) is (S.HELD if action == "hold" else S.ABORTED)
    if action == "abort":
        return
    assert (request.priority, request.production_steps) == (100_000, STEPS), "the step is still to come"
    request_release(request=request, **BY)
    cycles(world, 4)
    assert (status(request), request.stop_intent) == (S.STOPPING, StopIntent.STEP)


@pytest.mark.django_db(transaction=True)
def test_steps_may_be_changed_while_it_runs_and_one_that_is_passed_needs_a_word(world: World) -> None:
    request, job = started(world, [])
    finish_units(world, job, 3)
    assert status(request) is S.ACTIVE
    with pytest.raises(InvalidTransition, match=r"30\.0% are done.*at 20\.0% is passed already"):
        request_set_steps(request=request, steps=STEPS, **BY)
    request_set_steps(request=request, steps=STEPS[1:], **BY)
    cycles(world, 1)
    assert status(request) is S.ACTIVE
    request_set_steps(request=request, steps=STEPS, confirm=True, **BY)
    cycles(world, 1)
    assert (status(request), request.stop_intent) == (S.STOPPING, StopIntent.STEP)
    request_set_steps(request=request, steps=[], **BY)
    drained(world, request, job)
    assert (status(request), request.priority) == (S.ACTIVE, 100_000), "the steps were taken away meanwhile"
    outcomes = AuditEntry.objects.filter(action="request_set_steps").order_by("id").values_list("outcome", flat=True)
    assert [outcome == "refused" for outcome in outcomes] == [True, False, False, False]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("source", ["generation", "input"])
def test_steps_that_are_changed_later_say_how_whole_units_meet_them(world: World, source: str) -> None:
    document = documents.generation(100 * UNITS)
    if source == "input":
        document = documents.reprocessing(world.source("In", *[100] * UNITS), files_per_job=1)
    request = world.request(document)
    world.cycle()
    assert status(request) is S.ACTIVE
    before = fresh(request).warnings
    request_set_steps(request=request, steps=STEPS, **BY)
    assert fresh(request).warnings == before, "both are met"
    request_set_steps(request=request, steps=[{"fraction": 0.15, "priority": 7}], **BY)
    reported = "the production step at 15.0% cannot be met with work units of 10.0% of the work: it is taken at 20.0%"
    assert fresh(request).warnings == [*before, reported]
    request_set_steps(request=request, steps=[], **BY)
    assert fresh(request).warnings == before


@pytest.mark.django_db(transaction=True)
def test_a_step_passed_at_the_end_of_a_round_is_taken_there_and_costs_no_submission(
    world_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(world_root, monkeypatch, MAX_WORK_UNITS_PER_DAG="2")
    world.furnish()
    request, job = started(world, [{"fraction": 0.4, "priority": 7}], 4)
    world.schedd.end(job, End.FINISHED)
    cycles(world, 2)
    assert (status(request), request.priority, request.production_steps) == (S.ACTIVE, 7, [])
    world.schedd.end(world.job_of(request), End.FINISHED)
    assert work_done(world, request)
    assert len(world.schedd.jobs) == 2, "one DAG for each round"
    assert not RequestTransition.objects.filter(request=request, to_status=S.STOPPING).exists()


@pytest.mark.django_db(transaction=True)
def test_a_step_passed_when_units_failed_is_taken_with_their_rescue(world: World) -> None:
    request, job = started(world, STEPS[:1], 5)
    world.schedd.unit_failed(job, "mg_000000")
    world.schedd.end(job, End.FINISHED)
    cycles(world, 2)
    assert (status(request), request.priority, request.production_steps) == (S.ACTIVE, 80_000, [])
    assert DAG.objects.get(pk=world.job_of(request).dag_id).job_priority == 80_000
    assert len(world.schedd.jobs) == 2


@pytest.mark.django_db(transaction=True)
def test_a_step_never_raises_a_priority_that_was_lowered_meanwhile(world: World) -> None:
    request, job = started(world, STEPS[:1], 5)
    request_set_priority(request=request, priority=10, **BY)
    finish_units(world, job, 1)
    assert status(request) is S.ACTIVE, "nothing is stopped for a step that would change nothing"
    world.schedd.unit_failed(job, job.open_nodes[0])
    world.schedd.end(job, End.FINISHED)
    cycles(world, 4)
    assert (status(request), request.priority, request.production_steps) == (S.ACTIVE, 10, [])


@pytest.mark.django_db(transaction=True)
def test_a_restart_keeps_what_an_operator_said_after_a_step(world: World) -> None:
    request, job = stopping(world, STEPS)
    drained(world, request, job)
    request_set_priority(request=request, priority=333, **BY)
    request_set_steps(request=request, steps=[], **BY)
    new = request_restart(request=request, **BY)
    assert (new.priority, new.production_steps) == (333, [])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"priority": 80_000}, "at 20.0% is not below the request's, 80000"),
        ({"urgent": True}, "an urgent request does not step back"),
    ],
)
def test_steps_that_the_request_cannot_have_are_refused(fields: dict[str, Any], problem: str) -> None:
    request = request_row(S.QUEUED, **fields)
    with pytest.raises(InvalidTransition, match=problem):
        request_set_steps(request=request, steps=STEPS, **BY)
    request_set_steps(request=request, steps=[], **BY)
    document = documents.generation(100) | {"RequestPriority": fields.get("priority", 100_000)}
    with pytest.raises(DocumentRefused, match=f"production_steps: .*{problem}"):
        request_import(
            document=document,
            request_name=None,
            actor="olga",
            asked=Received(production_steps=STEPS, urgent=fields.get("urgent", False)),
        )
    assert not Request.objects.filter(request_name=document["RequestName"]).exists()


@pytest.mark.django_db
def test_what_is_over_takes_no_steps() -> None:
    with pytest.raises(InvalidTransition, match="nothing more is planned"):
        request_set_steps(request=request_row(S.COMPLETED), steps=STEPS, **BY)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([{"fraction": 0, "priority": 1}], r"production_steps\[0\]\.fraction: .* greater than 0"),
        ([{"fraction": 1.0, "priority": 1}], r"production_steps\[0\]\.fraction: .* less than 1"),
        ([{"fraction": 0.5, "priority": -1}], r"production_steps\[0\]\.priority"),
        ([{"fraction": 0.5, "priority": 1}, {"fraction": 0.5, "priority": 0}], r"production_steps\[1\]\.fraction: is not above"),
        ([{"fraction": 0.5, "priority": 1}, {"fraction": 0.6, "priority": 1}], r"production_steps\[1\]\.priority: is not below"),
        ([{"fraction": 0.5, "priority": 1}, {"fraction": 0.6, "priority": 2}], r"production_steps\[1\]\.priority: is not below"),
        ([{"fraction": 0.5}], r"production_steps\[0\]\.priority: Field required"),
        ([{"fraction": 0.5, "priority": 1, "prio": 2}], r"production_steps\[0\]\.prio"),
        ([{"fraction": n / 100, "priority": 1} for n in range(1, 30)], "29 are too many"),
    ],
)
def test_a_wrong_step_is_refused_by_its_place(steps: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(InvalidTransition, match=problem):
        steps_read(steps)


def test_steps_are_passed_from_the_first_on() -> None:
    steps = [ProductionStep(fraction=fraction, priority=1) for fraction in (0.1, 0.5, 0.9)]
    assert [steps_passed(steps, share) for share in (0.0, 0.1, 0.49, 0.5, 1.0)] == [0, 1, 1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_the_share_is_of_the_whole_request_and_not_of_the_round(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(world_root, monkeypatch, MAX_WORK_UNITS_PER_DAG="5")
    world.furnish()
    request, job = started(world, [{"fraction": 0.4, "priority": 7}])
    finish_units(world, job, 2)
    assert (status(request), share_done(ledger_of(request.workflow))) == (S.ACTIVE, 0.2)
    finish_units(world, job, 2)
    assert status(request) is S.STOPPING


@pytest.mark.django_db(transaction=True)
def test_a_dag_on_hold_is_not_drained_for_a_step_since_it_would_never_end(world: World) -> None:
    request, job = started(world, STEPS[:1])
    finish_units(world, job, 1)
    job.held_because = "no power at the site"
    finish_units(world, job, 1)
    assert (status(request), request.alert_code) == (S.ACTIVE, "dagman_held")
    job.held_because = ""
    cycles(world, 2)
    assert (status(request), request.stop_intent) == (S.STOPPING, StopIntent.STEP)


@pytest.mark.django_db(transaction=True)
def test_a_step_that_was_put_off_during_its_drain_is_not_taken(world: World) -> None:
    request, job = stopping(world, STEPS)
    later = [{"fraction": 0.9, "priority": 10_000}]
    request_set_steps(request=request, steps=later, **BY)
    drained(world, request, job)
    assert (status(request), request.priority, request.production_steps) == (S.ACTIVE, 100_000, later)
