"""What the life cycle makes of the failures of a DAG: counted while it runs, held after an abort, sites judged at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.models import FailureGroup
from requests_app.models import HoldCode, Request, RequestStatus
from sites_app.models import SiteBan
from tests.dags.test_failures import line
from tests.support.scripted import documents
from tests.support.scripted.invariants import check
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
SITE = "T2_CH_CERN"


@pytest.fixture(name="world")
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, monkeypatch)
    made.furnish()
    return made


def started(world: World) -> tuple[Request, Job]:
    """A DAG of three units runs."""
    request = world.request(documents.generation(300))
    world.cycle()
    return request, world.job_of(request)


def fail(job: Job, *sites: str, category: str = "infrastructure") -> None:
    """Failed attempts at these sites, as POST scripts write them."""
    with (job.directory / "failures.jsonl").open("a") as log:
        for site in sites:
            log.write(json.dumps(line(site=site, category=category, code=60311, fence=job.fence)) + "\n")


def test_failures_are_counted_while_the_dag_runs(world: World) -> None:
    _, job = started(world)
    fail(job, SITE, SITE)
    world.cycle()
    assert list(FailureGroup.objects.values_list("site", "attempts")) == [(SITE, 2)]


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
