"""Operations on a running DAG, on the real pool: the whole tree really stops, and afterwards everything has happened once."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from dags_app.models import DAG, DAGKind, DAGStatus, WorkUnit, WorkUnitState
from dags_app.services.stop import dag_hold, dag_release
from deploy.htcondor.sites import SITES
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.services import StopMode, request_abort, request_release, request_set_priority, request_stop
from requests_app.services.dags import dag_remove, dag_rescue
from requests_app.services.release import Changes, ReleaseMode
from sites_app.models import Site
from sites_app.pools import pools_refresh
from tests.support.outcomes import (
    assert_aborted,
    assert_completed_once,
    assert_each_event_once,
    assert_held,
    ended,
    imported,
    status,
    waiting_for,
)
from tests.support.stack import Worker, small_request, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow, pytest.mark.alone]
VERBS = "tests/requests_app/services/test_recovery_verbs.py"
S = RequestStatus
WHO = {"actor": "olga", "reason": "for the test"}
EVENTS, PER_JOB, JOBS_PER_UNIT = 180, 30, 3
DAGMAN, PROCESSING = 7, "processing"
IDLE, RUNNING, REMOVED, HELD, TRANSFERRING = 1, 2, 3, 5, 6


def wide_request() -> dict[str, Any]:
    """Two work units of three jobs, each of which fills a whole site, so that jobs wait in the queue of the schedd."""
    document = small_request(events=EVENTS, per_job=PER_JOB, steps=3)
    create = document["createRequest"]
    create |= {"Multicore": 8, "Memory": 15000}
    for step in ("Step1", "Step2", "Step3"):
        create[step]["Multicore"] = 8
    return document


@pytest.fixture(name="running")
def _running(ready: None) -> Iterator[Worker]:
    with worker(jobs_per_work_unit=JOBS_PER_UNIT, dag_max_merge_groups=1) as process:
        yield process


@pytest.fixture(name="wide")
def _wide(ready: None) -> Iterator[Worker]:
    """Both work units at the same time."""
    with worker(jobs_per_work_unit=JOBS_PER_UNIT) as process:
        yield process


def live_dag(request: Request) -> DAG:
    return DAG.objects.get(workflow__request=request, status__in=(DAGStatus.SUBMITTED, DAGStatus.RUNNING, DAGStatus.HALTED))


def in_queue(request: Request) -> list[dict[str, Any]]:
    """Every job of the request in the schedd's queue, DAGMans of both levels included."""
    constraint = f'WMS2_Request == "{request.request_name}"'
    attributes = "ClusterId,JobUniverse,JobStatus,JobPrio,WMS2_Role,WMS2_Unit,WMS2_Fence,HoldReason,HoldReasonCode,DAGManJobId"
    attributes += ",DESIRED_Sites"
    argv = ("condor_q", "-allusers", "-constraint", constraint, "-json", "-attributes", attributes)
    found: list[dict[str, Any]] = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout or "[]")
    return found


def past(request: Request) -> list[dict[str, Any]]:
    """Every job of the request that has left the queue."""
    constraint = f'WMS2_Request == "{request.request_name}"'
    attributes = "ClusterId,JobUniverse,JobStatus,WMS2_Role,WMS2_Unit,WMS2_Fence,ExitCode,RemoveReason,MATCH_GLIDEIN_CMSSite"
    argv = ("condor_history", "-constraint", constraint, "-json", "-attributes", attributes)
    found: list[dict[str, Any]] = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout or "[]")
    return found


def states(jobs: list[dict[str, Any]]) -> Counter[tuple[bool, int]]:
    """(is it a DAGMan, HTCondor's job status) -> how many."""
    return Counter((job["JobUniverse"] == DAGMAN, job["JobStatus"]) for job in jobs)


def busy(request: Request) -> bool:
    """DAGMans of both levels run, a processing job runs, and others wait for a slot."""
    jobs = in_queue(request)
    work = Counter(job["JobStatus"] for job in jobs if job.get("WMS2_Role") == PROCESSING)
    return states(jobs)[True, RUNNING] >= 2 and work[RUNNING] > 0 and work[IDLE] > 0


def units(request: Request, state: WorkUnitState) -> int:
    return WorkUnit.objects.filter(workflow__request=request, state=state).count()


def paused(request: Request) -> bool:
    """Everything that is left of it in the queue is on hold."""
    return {job["JobStatus"] for job in in_queue(request)} == {HELD}


def in_queue_by_site(request: Request) -> dict[str, dict[str, int]]:
    """Node jobs as ``condor_q`` has them: state -> number, by the site where they run or wait to; landing jobs are at ``""``."""
    found: dict[str, dict[str, int]] = {}
    for job in in_queue(request):
        state = {IDLE: "idle", RUNNING: "running", TRANSFERRING: "running", HELD: "held"}.get(job["JobStatus"])
        if job["JobUniverse"] != DAGMAN and state:
            states = found.setdefault("" if job["WMS2_Role"] == "landing" else job["DESIRED_Sites"], {})
            states[state] = states.get(state, 0) + 1
    return found


def shown(dag: DAG, user: User) -> dict[str, Any]:
    """What REST says of a DAG."""
    client = APIClient()
    client.force_authenticate(user)
    body: dict[str, Any] = client.get(f"/api/v1/dags/{dag.pk}").json()
    return body


def counts_agree(request: Request, dag: DAG, user: User) -> bool:
    """REST says what the queue had before and after it was asked: by state, at sites, and over all DAGs for the sites."""
    before, reported, after = in_queue_by_site(request), shown(dag, user), in_queue_by_site(request)
    sums = {state: sum(states.get(state, 0) for states in before.values()) for state in ("idle", "running", "held")}
    sites = {site: states for site, states in before.items() if site}
    rows = {row.name: {"idle": row.jobs_idle, "running": row.jobs_running, "held": row.jobs_held} for row in Site.objects.all()}
    return before == after and (
        {state: reported[f"nodes_{state}"] for state in sums} == sums
        and reported["jobs"].get("sites", {}) == sites
        and all(rows[site].get(state) == number for site, states in sites.items() for state, number in states.items())
    )


def test_a_held_dag_stands_still_at_both_levels_and_goes_on_after_its_release_with_another_priority(wide: Worker) -> None:
    user = User.objects.create_superuser("olga")
    request = imported(wide_request())
    # both at one moment: a fast machine gives all jobs their slots soon afterwards
    wide.wait(lambda: busy(request) and shown(live_dag(request), user)["nodes_running"] > 0, seconds=180)
    dag = live_dag(request)
    assert dag_hold(dag=dag, **WHO) > 2
    after = in_queue(request)
    assert states(after)[True, HELD] >= 2, "the outer DAGMan and an inner one"
    assert states(after)[True, RUNNING] == 0
    wide.wait(lambda: dag_hold(dag=dag, **WHO) == 0 and paused(request), seconds=120)
    jobs = in_queue(request)
    assert states(jobs)[False, HELD] > 0, "jobs that waited for a slot wait for the release now"
    assert {job["HoldReasonCode"] for job in jobs} == {1}
    assert all("olga: for the test" in job["HoldReason"] for job in jobs)
    wide.wait(lambda: "is held in HTCondor: olga: for the test" in waiting_for(request), seconds=60)
    request.refresh_from_db()
    assert (request.status, request.alert_code) == (S.ACTIVE, "dagman_held")
    assert paused(request)
    wide.wait(lambda: counts_agree(request, dag, user), seconds=60)
    reported = shown(dag, user)
    assert reported["nodes_held"] == states(jobs)[False, HELD] and reported["nodes_running"] == 0

    assert dag_release(dag=dag, **WHO) == len(jobs)
    request.refresh_from_db()
    request_set_priority(request=request, priority=4242, **WHO)
    wide.wait(lambda: {job["JobPrio"] for job in in_queue(request) if job["JobUniverse"] != DAGMAN} == {4242}, seconds=60)
    wide.wait(lambda: "work units done" in waiting_for(request), seconds=120)
    merges: list[int] = []

    def merge_seen() -> bool:
        merges.extend(job["JobPrio"] for job in in_queue(request) if job.get("WMS2_Role") in ("merge", "cleanup"))
        return 4242 in merges or ended(request)

    wide.wait(merge_seen, seconds=240)
    assert not merges or 4242 in merges, "jobs that come later have it, too"
    wide.wait(lambda: ended(request), seconds=240)
    assert_completed_once(request)
    assert_each_event_once(request, EVENTS)
    assert REMOVED not in {job["JobStatus"] for job in past(request)}, "no job was lost"
    reported = shown(dag, user)
    ended_jobs = {"ended_well": EVENTS // PER_JOB + 2, "ended_badly": 0, "success_rate": 1.0}
    assert (reported["nodes_done"], reported["counts"]["success"], reported["jobs"]) == (reported["total_nodes"], ended_jobs, {})


@pytest.mark.deep(f"{VERBS}::test_a_removed_dag_holds_its_request_and_its_rescue_releases_it")
def test_a_dag_that_is_removed_leaves_nothing_and_its_rescue_goes_on(running: Worker) -> None:
    request = imported(wide_request())
    running.wait(lambda: units(request, WorkUnitState.DONE) == 1 and busy(request), seconds=240)
    first = live_dag(request)
    dag_remove(dag=first, **WHO)
    running.wait(lambda: status(request) == S.HELD, seconds=120)
    assert_held(request, HoldCode.OPERATOR)
    assert in_queue(request) == [], "neither DAGMans nor their jobs"
    first.refresh_from_db()
    assert first.status == DAGStatus.STOPPED

    dag_rescue(dag=first, **WHO)
    running.wait(lambda: ended(request), seconds=240)
    assert_rescued(request, first)


@pytest.mark.deep(f"{VERBS}::test_a_removed_dag_holds_its_request_and_its_rescue_releases_it")
def test_a_held_dag_that_is_removed_leaves_a_rescue_file_too(wide: Worker) -> None:
    request = imported(wide_request())
    wide.wait(lambda: busy(request), seconds=180)
    first = live_dag(request)
    dag_hold(dag=first, **WHO)
    wide.wait(lambda: "is held in HTCondor" in waiting_for(request), seconds=60)
    dag_remove(dag=first, **WHO)
    wide.wait(lambda: status(request) == S.HELD, seconds=120)
    wide.wait(lambda: in_queue(request) == [], seconds=60)
    dag_rescue(dag=first, **WHO)
    wide.wait(lambda: ended(request), seconds=240)
    assert_rescued(request, first)


def assert_rescued(request: Request, first: DAG) -> None:
    """The second submission of the same directory did what the first had left, and nothing twice."""
    assert_completed_once(request, dags=2)
    assert_each_event_once(request, EVENTS)
    second = DAG.objects.get(workflow__request=request, parent_dag=first)
    assert (second.kind, second.status, second.submit_dir) == (DAGKind.STOP_RESCUE, DAGStatus.COMPLETED, first.submit_dir)


def test_a_drain_finishes_what_runs_and_its_rescue_does_the_rest_while_a_held_dag_is_aborted(running: Worker) -> None:
    request, aborted = imported(wide_request()), imported(wide_request())
    running.wait(lambda: busy(request), seconds=180)
    first = live_dag(request)
    begun = {job["WMS2_Unit"] for job in in_queue(request) if job.get("WMS2_Unit")}
    assert len(begun) == 1
    request.refresh_from_db()
    request_stop(request=request, mode=StopMode.DRAIN, **WHO)
    running.wait(lambda: "to finish; DAGMan job" in waiting_for(request), seconds=60)

    running.wait(lambda: busy(aborted), seconds=180)
    dag_hold(dag=live_dag(aborted), **WHO)
    aborted.refresh_from_db()
    request_abort(request=aborted, **WHO)
    running.wait(lambda: ended(aborted), seconds=120)
    assert_aborted(aborted)
    running.wait(lambda: in_queue(aborted) == [], seconds=60)

    running.wait(lambda: ended(request), seconds=300)
    assert_rescued(request, first)
    jobs = past(request)
    assert REMOVED not in {job["JobStatus"] for job in jobs}, "what ran was not removed"
    of_first = [job for job in jobs if job.get("WMS2_Fence") == first.fence and job["JobUniverse"] != DAGMAN]
    assert {job["WMS2_Unit"] for job in of_first} == begun, "no other unit was begun by the DAG that drained"
    first.refresh_from_db()
    assert first.outcome["history"]["exit_code"] == 1, "it ended by itself"
    assert (first.status, first.outcome["rescue"]) == (DAGStatus.STOPPED, "workflow.dag.rescue001")


@pytest.mark.deep(f"{VERBS}::test_a_site_that_the_release_bans_is_avoided_by_the_rescue")
def test_a_site_banned_with_a_release_is_left_by_every_unit_that_is_not_done(wide: Worker) -> None:
    request = imported(wide_request())
    wide.wait(lambda: busy(request), seconds=180)
    first = live_dag(request)
    landed = {job["MATCH_GLIDEIN_CMSSite"] for job in past(request) if job.get("WMS2_Role") == "landing"}
    (banned, *_) = sorted(landed)
    dag_remove(dag=first, **WHO)
    wide.wait(lambda: status(request) == S.HELD, seconds=120)
    request.refresh_from_db()
    changes = Changes(site_bans=(banned,))
    request_release(request=request, mode=ReleaseMode.RESCUE, changes=changes, **WHO)
    wide.wait(lambda: ended(request), seconds=300)
    assert_completed_once(request, dags=2)
    assert_each_event_once(request, EVENTS)
    later = [job for job in past(request) if job.get("WMS2_Fence", 0) > first.fence and job.get("WMS2_Role")]
    assert later
    assert banned not in {job["MATCH_GLIDEIN_CMSSite"] for job in later}


def test_slots_of_the_sites_come_from_the_collector(ready: None) -> None:
    assert list(pools_refresh().values()) == [""]
    for site in SITES:
        row = Site.objects.get(pk=site.cms_name)
        assert row.total_slots == site.cpus
        assert 0 <= row.running_slots <= row.total_slots
        assert row.slots_seen_at is not None
