"""A database that was restored from before a submission: rows that say READY, and DAGMan jobs of theirs (docs/runbook.md, A lost
database). In the scripted world; on the pool: ``tests/pool/test_restored_database.py``."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Min

from dags_app.failure_rules import rules_shipped
from dags_app.models import DAG, IN_QUEUE, DAGHistory, DAGStatus, WorkUnit, WorkUnitClaim
from dags_app.services.orphans import orphans_ask, orphans_known, orphans_report
from requests_app.lifecycle.cycle import sweep
from requests_app.models import EvaluationLease, HoldCode, Request, RequestStatus, Workflow
from requests_app.service_level import new_work_allow, new_work_stop, service
from requests_app.services import request_abort, request_hold, request_release, request_stop
from requests_app.services.adopting import adopt_preview, adopt_refused, schedd_adopt_strays
from requests_app.work import planner, sizing
from requests_app.work.pileup import PILEUP_CACHE_SECONDS
from sites_app.models import Schedd, ScheddState
from tests.support.rows import schedd_row
from tests.support.scripted import documents
from tests.support.scripted.branching import Rows, all_rows, put_rows
from tests.support.scripted.faults import Mode
from tests.support.scripted.progress import started, status, work_done
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition
from wms2.models import AuditEntry
from wms2.runtime import clock

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/lifecycle/test_restored_databases.py"
#: For the long run.
UNDISTURBED = pytest.mark.deep(f"{HERE}::test_what_was_registered_after_the_backup_is_not_registered_again")
OWN = pytest.mark.deep(f"{HERE}::test_a_dag_that_was_planned_after_the_backup_is_taken_up_and_never_run_beside")
BY_VERB = pytest.mark.deep(f"{HERE}::test_what_runs_without_a_row_is_adopted_by_a_verb_or_it_says_why_not")
VERB = pytest.mark.deep(f"{HERE}::test_a_dag_that_runs_is_not_given_up_for_one_that_was_never_submitted[abort]")
S = RequestStatus
ASKED: dict[str, Any] = {"actor": "olga", "reason": "maintenance"}


def forget_submission(dag_id: uuid.UUID, *, fence: int) -> None:
    """The rows are those from before this DAG's submission."""
    DAGHistory.objects.filter(dag=dag_id).delete()
    before = {"attempt": 0, "fence": 0, "submit_intent_at": None, "submitted_at": None, "dagman_cluster_id": ""}
    DAG.objects.filter(pk=dag_id).update(status=DAGStatus.READY, observed={}, **before)
    workflow = DAG.objects.get(pk=dag_id).workflow
    Workflow.objects.filter(pk=workflow.pk).update(fence_counter=fence)
    Request.objects.filter(pk=workflow.request.pk).update(status=S.PLANNING)


@pytest.mark.parametrize("meanwhile", ["silence", "abort", pytest.param("stop", marks=VERB), pytest.param("hold", marks=VERB)])
def test_a_dag_that_runs_is_not_given_up_for_one_that_was_never_submitted(world: World, meanwhile: str) -> None:
    request, job = started(world)
    numbers = Workflow.objects.get(request=request).next_first_event
    forget_submission(job.dag_id, fence=0)
    request.refresh_from_db()
    world.schedd.unit_done(job, "mg_000000")
    actions = {"stop": request_stop, "hold": request_hold, "abort": request_abort}
    if meanwhile == "silence":
        world.schedd.silent = True
        world.evaluate(request)
        world.schedd.silent = False
        assert (status(request), DAG.objects.get().status) == (S.PLANNING, DAGStatus.READY)
        assert "a submission that was forgotten" in request.waiting_for
    else:
        actions[meanwhile](request=request, **ASKED)
    world.evaluate(request)
    dag = DAG.objects.get()
    assert (dag.status, dag.dagman_cluster_id, dag.fence) == (DAGStatus.SUBMITTED, str(job.cluster), job.fence)
    assert WorkUnit.objects.filter(dag=dag).count() == 3
    assert Workflow.objects.get(request=request).next_first_event == numbers
    for _ in range(5):
        world.cycle()
    assert status(request) == {"silence": S.ACTIVE, "stop": S.ACTIVE, "hold": S.HELD, "abort": S.ABORTED}[meanwhile]
    assert WorkUnit.objects.get(name="mg_000000").state == "done"
    assert not world.errors


def test_a_rescue_that_runs_is_adopted_while_nothing_is_known_of_its_pileup(world: World) -> None:
    pileup, document = world.source("Premix", 100), documents.generation(300)
    request = world.request({**document, "Step2": {**document["Step2"], "MCPileup": pileup}})
    world.cycle()
    request_stop(request=request, **ASKED)
    for _ in range(6):
        world.cycle()
    job = world.job_of(request)
    forget_submission(DAG.objects.get(status__in=IN_QUEUE).pk, fence=1)
    world.clock.advance(10 * PILEUP_CACHE_SECONDS)
    for name in ("dbs", "rucio"):
        world.scripts[name].arm(Mode.DOWN, 5000)
    world.evaluate(request)
    assert (status(request), DAG.objects.get(fence=job.fence).dagman_cluster_id) == (S.ACTIVE, str(job.cluster))
    assert world.schedd.live == [job]


@pytest.mark.parametrize("ways", [("silence", "stop"), pytest.param(("nothing",), marks=UNDISTURBED)])
def test_what_was_registered_after_the_backup_is_not_registered_again(world: World, ways: tuple[str, ...]) -> None:
    """However often it is restored."""
    request = world.request(documents.generation(300))
    world.crash_at = "plan.recorded"
    world.cycle()
    assert (DAG.objects.get().status, DAG.objects.get().submit_intent_at) == (DAGStatus.READY, None)
    backup = all_rows()
    to_the_end(world, request)
    before = registered(world)
    assert (status(request), sum(before.values())) == (S.COMPLETED, 600)
    for meanwhile in ways:
        restore(backup)
        assert (status(request), DAG.objects.get().status) == (S.PLANNING, DAGStatus.READY)
        if meanwhile == "silence":
            world.schedd.silent = True
            world.cycle()
            world.schedd.silent = False
        elif meanwhile == "stop":
            request_stop(request=request, **ASKED)
        to_the_end(world, request)
        assert (status(request), registered(world), len(world.schedd.jobs)) == (S.COMPLETED, before, 1), meanwhile


def test_where_the_schedd_was_forgotten_too_the_job_is_looked_for_at_all(world: World) -> None:
    world.furnish_another()
    request, job = started(world)
    DAG.objects.update(schedd=None, schedd_name="")
    forget_submission(job.dag_id, fence=0)
    Schedd.objects.filter(name=job.at).update(state=ScheddState.DISABLED)
    Schedd.objects.exclude(name=job.at).update(state=ScheddState.ENABLED)
    world.evaluate(request)
    dag = DAG.objects.get()
    assert (status(request), dag.schedd_name, dag.dagman_cluster_id) == (S.ACTIVE, job.at, str(job.cluster))
    assert world.schedd.live == [job] and not world.errors


def test_where_nobody_has_the_job_any_more_an_operator_decides_and_no_number_is_used_again(world: World) -> None:
    request, job = started(world)
    numbers = Workflow.objects.get(request=request).next_first_event
    forget_submission(job.dag_id, fence=0)
    world.schedd.end(job, End.FINISHED)
    world.schedd.history_lags = True  # cut off
    sweep(transaction.atomic)  # rows were put in place: nothing woke what they say
    for _ in range(3):
        world.cycle()
    assert (status(request), len(world.schedd.jobs)) == (S.PLANNING, 1)
    assert "no queue and no history has it" in request.waiting_for
    request_hold(request=request, **ASKED)
    for _ in range(3):
        world.cycle()
    assert (status(request), DAG.objects.get().status) == (S.HELD, DAGStatus.REMOVED)
    assert Workflow.objects.get(request=request).next_first_event == numbers


def test_one_restored_in_the_middle_of_a_step_says_what_it_waits_for_with_the_next_cycle(world: World) -> None:
    """Whatever its rows say of when it is due."""
    world.sweep_every = 1000
    request, job = started(world)
    forget_submission(job.dag_id, fence=0)
    world.schedd.end(job, End.FINISHED)
    world.schedd.history_lags = True  # cut off
    EvaluationLease.objects.update(due_at=clock.now() + timedelta(days=2), evaluated_at=clock.now())
    assert sweep(transaction.atomic) == 1
    world.cycle()
    assert (status(request), "no queue and no history has it" in request.waiting_for) == (S.PLANNING, True), request.waiting_for
    assert sweep(transaction.atomic) == 0, "from now on it is due with each cycle"


def test_metrics_of_before_prove_nothing_of_a_rescue_that_was_adopted(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    request_stop(request=request, **ASKED)
    world.cycle()
    assert not world.schedd.lose_queue()
    while status(request) != S.ACTIVE:
        world.cycle()
    rescue = world.job_of(request)
    assert (rescue.cluster, rescue.directory) == (job.cluster, job.directory)
    forget_submission(rescue.dag_id, fence=job.fence)
    world.evaluate(request)
    assert DAG.objects.get(pk=rescue.dag_id).fence == rescue.fence
    world.cycle()
    assert world.schedd.lose_queue() == [rescue]
    world.cycle()
    assert status(request) is S.ACTIVE
    assert DAG.objects.get(pk=rescue.dag_id).status in IN_QUEUE


@pytest.mark.parametrize(
    "since",
    [
        "rules, and it has ended",
        "elsewhere",
        "units",
        pytest.param("nothing", marks=OWN),
        pytest.param("units, and it has ended", marks=OWN),
    ],
)
def test_a_dag_that_was_planned_after_the_backup_is_taken_up_and_never_run_beside(world: World, since: str) -> None:
    """Its row is gone: planned again it has the same id, and the directory says what it runs."""
    request = world.request(documents.generation(300))
    world.crash_at = "plan.claimed"
    world.cycle()
    backup = all_rows()
    world.cycle()
    job = world.job_of(request)
    numbers = Workflow.objects.get(request=request).next_first_event
    restore(backup)
    assert (status(request), DAG.objects.count()) == (S.PLANNING, 0)
    if since.endswith("ended"):
        world.schedd.end(job, End.FINISHED)
        world.clock.advance(600)
    if since.startswith("rules"):
        world.patch.setattr(planner, "rules_in_force", lambda: replace(rules_shipped(), rules=()))
    elif since == "elsewhere":
        another = schedd_row("other@test", pool="scripted", submit_root=str(world.root / "elsewhere"))
        Request.objects.update(reserved_schedd=another)
        strays(world, Schedd.objects.get(name=job.at))
    elif since.startswith("units"):
        world.patch.setattr(sizing, "MAX_WORK_UNITS_PER_DAG", 2)
    for _ in range(3):
        world.cycle()
    if since == "units":
        assert status(request) is S.HELD
        assert f"{job.cluster}" in request.hold_reason and "Remove strays" in request.hold_reason
        world.schedd.end(job, End.REMOVED)
        world.cycle()
        request_release(request=request, **ASKED)
        for _ in range(2):
            world.cycle()
    dags = list(DAG.objects.order_by("created_at"))
    if since.startswith("units"):
        assert [dag.status for dag in dags] == [DAGStatus.REMOVED, DAGStatus.RUNNING]
        assert str(dags[1].pk) != job.dag_id and dags[1].fence > job.fence
        least = WorkUnitClaim.objects.filter(unit__dag=dags[1], kind=WorkUnitClaim.KIND_GENERATED).aggregate(Min("first"))
        assert least["first__min"] >= numbers - 100, "no number of the one that was forgotten is used again"
    else:
        assert [(str(dag.pk), dag.fence, dag.dagman_cluster_id) for dag in dags] == [(job.dag_id, job.fence, str(job.cluster))]
        assert Path(dags[0].submit_dir) == job.directory and dags[0].schedd_name == job.at
        assert Workflow.objects.get(request=request).next_first_event == numbers
    assert work_done(world, request) and not world.errors


def test_one_that_was_removed_by_hand_before_its_row_was_planned_again_is_held_for_that(world: World) -> None:
    """Its row is younger than the end of its job, to which the history was not read back: its outcome was unknown."""
    request = world.request(documents.generation(300))
    world.crash_at = "plan.claimed"
    world.cycle()
    backup = all_rows()
    world.cycle()
    world.schedd.end(world.job_of(request), End.REMOVED)
    world.clock.advance(600)
    restore(backup)
    for _ in range(3):
        world.cycle()
    assert (status(request), request.hold_code, len(world.schedd.jobs)) == (S.HELD, HoldCode.REMOVED, 1), request.waiting_for


@pytest.mark.parametrize(
    "since",
    [
        "held",
        pytest.param("queued", marks=BY_VERB),
    ],
)
def test_what_runs_without_a_row_is_adopted_by_a_verb_or_it_says_why_not(world: World, since: str) -> None:
    new_work_stop(service=service(), **ASKED)
    request = world.request(documents.generation(300))
    world.cycle()
    assert status(request) is S.QUEUED
    if since != "queued":
        request_hold(request=request, **ASKED)
    backup = all_rows()
    if since != "queued":
        request_release(request=request, **ASKED)
    new_work_allow(service=service(), **ASKED)
    world.cycle()
    job, schedd = world.job_of(request), Schedd.objects.get()
    restore(backup)
    strays(world, schedd)
    if since == "held":
        dag_id, elsewhere = job.dag_id, world.root / "not mounted"
        job.dag_id = str(uuid.uuid4())
        not_adopted(world, schedd, job, "neither the next round")
        job.dag_id = dag_id
        job.directory.rename(elsewhere)
        not_adopted(world, schedd, job, "is not seen from here")
        elsewhere.rename(job.directory)
        before = all_rows()
        request_abort(request=request, **ASKED)
        not_adopted(world, schedd, job, "is Aborted")
        restore(before)
        strays(world, schedd)
    (line,) = adopt_preview(schedd)
    assert adopt_refused(schedd) == "" and f"Adopted: {request.request_name} is planned now" in line
    schedd_adopt_strays(schedd=schedd, **ASKED)
    assert status(request) is S.PLANNING, "whatever the queue"
    world.cycle()
    assert (status(request), world.schedd.live) == (S.ACTIVE, [job])
    assert AuditEntry.objects.get(action="schedd_adopt_strays", outcome="done").evidence["request"] == request.request_name
    assert work_done(world, request) and len(world.schedd.jobs) == 1


def not_adopted(world: World, schedd: Schedd, job: Job, why: str) -> None:
    """Looked at again, it is refused, and said so at once."""
    strays(world, schedd)
    (line,) = adopt_preview(schedd)
    assert why in line and "Remove it" in line
    with pytest.raises(InvalidTransition, match=why):
        schedd_adopt_strays(schedd=schedd, **ASKED)
    assert world.schedd.live == [job]
    assert AuditEntry.objects.filter(action="schedd_adopt_strays").latest("pk").outcome == "refused"


def test_a_rescue_that_was_submitted_after_the_backup_is_taken_up(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, "mg_000000")
    backup = all_rows()
    request_stop(request=request, **ASKED)
    for _ in range(6):
        world.cycle()
    rescue = world.job_of(request)
    assert rescue.fence > job.fence
    restore(backup)
    for _ in range(4):
        world.cycle()
    assert (status(request), world.schedd.live) == (S.HELD, [rescue]), "who asked for the stop is forgotten"
    schedd = Schedd.objects.get()
    assert "Two looks" in adopt_refused(schedd)
    strays(world, schedd)
    assert f"Adopted: {request.request_name}" in adopt_preview(schedd)[0]
    schedd_adopt_strays(schedd=schedd, **ASKED)
    for _ in range(2):
        world.cycle()
    assert (status(request), world.schedd.live) == (S.ACTIVE, [rescue])
    dag = DAG.objects.get(status__in=IN_QUEUE)
    assert (str(dag.pk), dag.fence, dag.dagman_cluster_id) == (rescue.dag_id, rescue.fence, str(rescue.cluster))
    assert work_done(world, request) and not world.errors


# --- the scene


def strays(world: World, schedd: Schedd) -> None:
    """Two looks at what no row knows."""
    for _ in range(2):
        found = orphans_ask(schedd, orphans_known(schedd, clock.now()))
        orphans_report(schedd=schedd, found=found or [], now=clock.now(), fenced=transaction.atomic)


def to_the_end(world: World, request: Request) -> None:
    for _ in range(25):
        world.cycle()
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.clock.advance(60)
        if status(request) in (S.COMPLETED, S.HELD):
            return


def registered(world: World) -> dict[str, int]:
    """Events in DBS by dataset."""
    found: dict[str, int] = {}
    for block in world.dbs.registered.values():
        found[block.dataset] = found.get(block.dataset, 0) + sum(file.events for file in block.files.values())
    return found


def restore(kept: Rows) -> None:
    """As pg_restore does: no trigger speaks of what comes in."""
    put_rows(all_rows(), kept)
