"""What the life cycle makes of the failures of a DAG: counted while it runs, held after an abort, sites judged at its end."""

from __future__ import annotations

import json

import pytest

from dags_app.models import DAG, DAGStatus, FailureGroup
from dags_app.payload.contract.layout import SUCCEEDED_FILE
from requests_app.models import HoldCode, RequestStatus
from requests_app.selectors.needs import needs_by_cause
from sites_app.models import SiteBan
from tests.support.scene_failures import line
from tests.support.scripted import documents
from tests.support.scripted.invariants import check
from tests.support.scripted.progress import fresh, run_on, started
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
SITE = "T2_CH_CERN"


def fail(job: Job, *sites: str, category: str = "infrastructure", code: int = 60311) -> None:
    """Failed attempts at these sites, as POST scripts write them."""
    with (job.directory / "failures.jsonl").open("a") as log:
        for site in sites:
            log.write(json.dumps(line(site=site, category=category, code=code, fence=job.fence)) + "\n")


def test_failures_are_counted_while_the_dag_runs(world: World) -> None:
    _, job = started(world)
    fail(job, SITE, SITE)
    world.cycle()
    assert list(FailureGroup.objects.values_list("site", "attempts")) == [(SITE, 2)]


def test_a_request_whose_attempts_all_fail_says_so_until_a_job_does_well(world: World) -> None:
    request, job = started(world)
    fail(job, SITE)
    world.cycle()
    request.refresh_from_db()
    assert request.alert_code == ""
    assert request.waiting_for.endswith("0 of 3 work units done; 1 attempt failed, and no job has done well yet")
    fail(job, *[SITE] * 9)
    world.cycle()
    request.refresh_from_db()
    assert request.alert_code == "all_failing"
    assert request.waiting_for.endswith("0 of 3 work units done; 10 attempts failed, and no job has done well yet")
    assert [(cause.code, cause.names) for cause in needs_by_cause()] == [("all_failing", [request.request_name])], (
        "before it is held"
    )
    (job.directory / SUCCEEDED_FILE).write_text(str(job.fence))
    world.cycle()
    request.refresh_from_db()
    assert request.alert_code == ""
    assert "failed" not in request.waiting_for


def test_attempts_of_an_earlier_submission_do_not_speak_against_a_rescue(world: World) -> None:
    request, job = started(world)
    for unit in job.open_nodes[:2]:
        world.schedd.unit_done(job, unit)
    world.schedd.unit_failed(job, job.open_nodes[0])
    (job.directory / SUCCEEDED_FILE).write_text(str(job.fence))
    fail(job, *[SITE] * 20, category="transient")
    world.schedd.end(job, End.FINISHED)
    for _ in range(6):
        world.cycle()
    rescue = world.job_of(request)
    assert rescue.fence != job.fence
    fail(rescue, SITE, category="transient")
    world.cycle()
    request.refresh_from_db()
    assert request.alert_code == ""
    assert request.waiting_for.endswith("; 1 attempt failed, and no job has done well yet")


def test_of_an_ended_dag_nothing_runs_and_the_counts_are_those_of_its_end(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_done(job, job.open_nodes[0])
    world.cycle()
    world.schedd.unit_failed(job, job.open_nodes[0])
    world.schedd.unit_done(job, job.open_nodes[0])
    world.schedd.end(job, End.FINISHED)
    world.cycle()
    dag = DAG.objects.get(workflow=request.workflow, fence=job.fence)
    assert dag.status == DAGStatus.PARTIAL
    assert (dag.nodes_running, dag.nodes_idle, dag.nodes_held) == (0, 0, 0)
    assert (dag.nodes_done, dag.nodes_failed) == (2, 1)


def test_a_completed_dag_has_all_its_units_done_even_without_a_status_file(world: World) -> None:
    request, job = started(world)
    world.schedd.end(job, End.UNLISTED)
    world.cycle()
    dag = DAG.objects.get(workflow=request.workflow)
    assert (dag.status, dag.nodes_done, dag.nodes_failed) == (DAGStatus.COMPLETED, 3, 0)


def test_a_dag_that_aborted_itself_holds_the_request_whatever_the_share_of_failed_units(world: World) -> None:
    request, job = started(world)
    for unit in job.open_nodes[:2]:
        world.schedd.unit_done(job, unit)
    world.schedd.unit_failed(job, job.open_nodes[0])
    fail(job, SITE, category="permanent")
    world.schedd.end(job, End.ABORTED)
    for _ in range(4):
        world.cycle()
    request.refresh_from_db()
    assert (request.status, request.hold_code) == (RequestStatus.HELD, HoldCode.ABORT_CODE)
    assert FailureGroup.objects.get().attempts == 1, "what was written last is counted too"
    check(world)


def test_three_broken_requests_beside_a_healthy_one_ban_no_site(world: World) -> None:
    """Nothing to read, every job 8021: that is the requests' own, and named there."""
    healthy, _ = started(world)
    for _ in range(3):
        request = world.request(documents.generation(300))
        world.cycle()
        job = world.job_of(request)
        fail(job, *[SITE] * 9, category="data", code=8021)
        for unit in list(job.open_nodes):
            world.schedd.unit_failed(job, unit)
        world.schedd.end(job, End.FINISHED)
        world.cycle()
        world.cycle()
        assert fresh(request).status == RequestStatus.HELD
        assert list(request.workflow.failure_groups.values_list("code", flat=True)) == [8021]
    assert not SiteBan.objects.exists()
    assert run_on(world, healthy) == RequestStatus.COMPLETED


def test_a_site_whose_faults_failed_most_attempts_is_banned_for_the_request_when_its_dag_ends(world: World) -> None:
    request, job = started(world)
    world.schedd.unit_failed(job, job.open_nodes[0])
    fail(job, *[SITE] * 9)
    assert not SiteBan.objects.exists()
    world.schedd.end(job, End.FINISHED)
    for _ in range(3):
        world.cycle()
    ban = SiteBan.objects.get()
    assert (ban.site_id, ban.workflow_id, ban.failure_data["against_site"]) == (SITE, request.workflow.pk, 9)
