"""Units whose site starts none of their jobs: alerted on, and told to land elsewhere, once, if nothing of them has begun."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dags_app.models import DAGHistory, DAGStatus
from requests_app.lifecycle.unbegun import CODE, UNITS_LEAVE
from sites_app.models import SiteBan
from tests.support.scene_failures import line
from tests.support.scripted.progress import fresh, started
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2 import clock
from wms2.adapters.htcondor_ads import IDLE_ATTRIBUTE

pytestmark = pytest.mark.django_db(transaction=True)
DEAF, HOURS = "T1_US_FNAL", 3600


def land(job: Job, unit: str, site: str, at: str = "") -> None:
    place = job.directory / unit
    (place / "site.inc").write_text(f"ELECTED_SITE = {site}\n")
    with (place / "elected.log").open("a") as log:
        log.write(f"{at or f'{clock.now():%Y-%m-%dT%H:%M:%SZ}'} {site}\n")


def waiting(unit: str, hours: float, site: str = DEAF, **more: Any) -> dict[str, Any]:
    """A node job's ad, in the queue for so long."""
    queued = int((clock.now() - timedelta(hours=hours)).timestamp())
    return {"WMS2_Unit": unit, "WMS2_Role": "processing", "JobStatus": 1, "QDate": queued, "DESIRED_Sites": site, **more}


def left(world: World) -> set[str]:
    return {ad["WMS2_Unit"] for ad in world.schedd.waiting if IDLE_ATTRIBUTE in ad}


def look(world: World) -> None:
    world.cycle()
    world.clock.advance(2 * HOURS)
    world.cycle()


def test_units_of_which_nothing_has_begun_leave_a_site_that_starts_nothing(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 7), waiting("mg_000000", 7)]
    look(world)
    assert left(world) == {"mg_000000"}
    assert fresh(request).alert_code == CODE
    told = DAGHistory.objects.get(event_type=UNITS_LEAVE).detail
    assert (told["units"], told["jobs"]) == (["mg_000000"], 2)
    assert f"1 work unit at {DEAF} has begun in 6 h" in told["why"] and "1 unit to land elsewhere" in told["why"]
    look(world)
    assert DAGHistory.objects.filter(event_type=UNITS_LEAVE).count() == 1, "it was said once"
    world.schedd.waiting = []
    look(world)
    assert fresh(request).alert_code == ""


def test_a_site_that_units_leave_is_not_banned_for_it(world: World) -> None:
    request, job = started(world)
    away = {"category": "infrastructure", "code": 95103, "rule": "held-idle", "fence": job.fence}
    lines = [line(site=DEAF, message=f"held: WMS2: idle for {seconds} s", **away) for seconds in (*[0] * 9, 432_000)]
    (job.directory / "failures.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    world.schedd.unit_failed(job, job.open_nodes[0])
    world.schedd.end(job, End.FINISHED)
    for _ in range(3):
        world.cycle()
    assert request.workflow.dags.order_by("created_at").first().status == DAGStatus.PARTIAL
    assert not SiteBan.objects.exists(), "nothing has failed there"


@pytest.mark.parametrize(
    "ads",
    [
        [("mg_000000", 1.0, {})],
        [("mg_000000", 7.0, {"JobStatus": 2})],
        [("mg_000000", 7.0, {}), ("mg_000000", 7.0, {"JobStatus": 2, "DESIRED_Sites": "T2_CH_CERN"})],
        [("mg_000000", 7.0, {"NumJobStarts": 1})],
        [("mg_000000", 7.0, {"WMS2_Role": "merge"})],
        [("mg_000000", 7.0, {"DESIRED_Sites": "T2_CH_CERN"})],
    ],
    ids=["not for long", "it runs", "one of the unit runs", "it was evicted", "its merge", "a site that starts others"],
)
def test_units_that_have_begun_or_wait_with_reason_stay(world: World, ads: list[Any]) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting(unit, hours) | more for unit, hours, more in ads]
    world.cycle()
    assert (left(world), fresh(request).alert_code) == (set(), "")


def test_a_unit_of_which_a_job_has_ended_there_stays_and_is_alerted_on(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    (job.directory / "mg_000000/proc_000000.post.json").write_text('{"job": {"exit_code": 0}}')
    world.schedd.waiting = [waiting("mg_000000", 7)]
    look(world)
    assert (left(world), fresh(request).alert_code) == (set(), CODE)


def test_a_unit_leaves_once_in_a_submission_and_only_where_it_has_another_site(world: World) -> None:
    request, job = started(world)
    world.clock.advance(60)
    for _ in range(2):  # it has left one since
        land(job, "mg_000000", DEAF)
    land(job, "mg_000001", DEAF, at="2020-01-01T00:00:00Z")  # that was an earlier submission
    land(job, "mg_000001", DEAF)
    (job.directory / "mg_000002/avoid.inc").write_text("UNIT_AVOID = T2_CH_CERN,T2_US_Purdue,T2_DE_DESY\n")
    land(job, "mg_000002", DEAF)
    world.schedd.waiting = [waiting(f"mg_{n:06d}", 7) for n in range(3)]
    look(world)
    assert left(world) == {"mg_000001"}
    assert fresh(request).alert_code == CODE


def test_where_nothing_runs_anywhere_there_is_no_room_and_no_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, job = started(world)
    for name in list(job.nodes):
        land(job, name, DEAF)
    monkeypatch.setattr(Job, "count", lambda self, state: 0)
    world.schedd.waiting = [waiting(name, 7) for name in job.nodes]
    world.cycle()
    assert (left(world), fresh(request).alert_code) == (set(), "")
