"""Units whose site starts none of their jobs: alerted on, and told to land elsewhere, once, if nothing of them has begun."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from dags_app.models import DAGHistory, DAGStatus
from dags_app.payload.contract.layout import OUTER_STATUS, PROCESSING_SUBMIT
from dags_app.services.leave_site import UNITS_LEAVE, dag_leave_sites, leave_preview
from requests_app.lifecycle.unbegun import CODE
from requests_app.models import Event, Request
from sites_app.models import SiteBan
from tests.support.html import text
from tests.support.scene_failures import line
from tests.support.scripted import dagman
from tests.support.scripted.progress import fresh, started
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.units import land, left, waiting, write_status
from tests.support.scripted.world import World
from wms2.adapters.htcondor_ads import IDLE_ATTRIBUTE
from wms2.errors import InvalidTransition, ServiceUnavailable
from wms2.models import AuditEntry
from wms2.runtime import clock
from wms2.runtime.due import mark_due

pytestmark = pytest.mark.django_db(transaction=True)
DEAF, HOURS = "T1_US_FNAL", 3600


def request_wake(request: Request) -> None:
    with transaction.atomic():
        mark_due({request.pk}, "test")


def look_once(world: World) -> None:
    world.clock.advance(2 * HOURS)
    world.cycle()


def look(world: World) -> None:
    for job in world.schedd.live:
        write_status(job)
    world.cycle()
    look_once(world)


def test_units_of_which_nothing_has_begun_leave_a_site_that_starts_nothing(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 7), waiting("mg_000000", 7)]
    look(world)
    assert left(world) == {"mg_000000"}
    assert fresh(request).alert_code == CODE
    reported = DAGHistory.objects.get(event_type=UNITS_LEAVE).detail
    assert (reported["units"], reported["jobs"]) == (["mg_000000"], 2)
    assert f"1 work unit at {DEAF} has begun in 6 h" in reported["why"] and "1 unit to land elsewhere" in reported["why"]
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
        [("mg_000000", 7.0, {}), ("mg_000000", 7.0, {"JobStatus": 2, "WMS2_Site": "T2_CH_CERN"})],
        [("mg_000000", 7.0, {"NumJobStarts": 1})],
        [("mg_000000", 7.0, {"WMS2_Role": "merge"})],
        [("mg_000000", 7.0, {"WMS2_Site": "T2_CH_CERN", "DESIRED_Sites": DEAF})],
    ],
    ids=["not for long", "it runs", "one of the unit runs", "it was evicted", "its merge", "a site that starts others"],
)
def test_units_that_have_begun_or_wait_with_reason_stay(world: World, ads: list[Any]) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting(unit, hours) | more for unit, hours, more in ads]
    look_once(world)
    assert (left(world), fresh(request).alert_code) == (set(), "")


def test_a_unit_of_which_a_job_has_ended_there_stays_and_is_alerted_on(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    (job.directory / "mg_000000/proc_000000.post.json").write_text('{"job": {"exit_code": 0}}')
    world.schedd.waiting = [waiting("mg_000000", 7)]
    look(world)
    assert (left(world), fresh(request).alert_code) == (set(), CODE)


@pytest.mark.parametrize(
    ("retries", "age_hours", "leaves"),
    [(0, 0, True), (1, 0, False), (0, 12, False), (0, None, False)],
    ids=["not used", "used", "written before it was queued", "torn"],
)
def test_a_unit_leaves_only_while_its_retry_is_known_to_be_left(
    world: World, retries: int, age_hours: int | None, leaves: bool
) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 7)]
    written_at = int(clock.now().timestamp()) + 2 * HOURS - 3600 * (age_hours or 0)
    dagman.write_status(job.directory, job.nodes, final=False, written_at=written_at, retries=retries)
    if age_hours is None:
        (job.directory / OUTER_STATUS).write_text("[")
    look_once(world)
    assert (bool(left(world)), fresh(request).alert_code) == (leaves, CODE)


def test_a_unit_leaves_only_where_it_has_another_site_whatever_its_log_says(world: World) -> None:
    request, job = started(world)
    for torn in ("2026-11-2", "2026-11-26", "2026-11-26T10:00:00", "no time"):
        land(job, "mg_000001", DEAF, at=torn)
    (job.directory / "mg_000002/avoid.inc").write_text("UNIT_AVOID = T2_CH_CERN,T2_US_Purdue,T2_DE_DESY\n")
    land(job, "mg_000002", DEAF)
    world.schedd.waiting = [waiting(f"mg_{n:06d}", 7) for n in range(1, 3)]
    look(world)
    assert left(world) == {"mg_000001"}
    assert (fresh(request).alert_code, fresh(request).last_error) == (CODE, "")


def test_a_dag_of_a_former_release_is_told_to_stay(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    submit = job.directory / PROCESSING_SUBMIT
    submit.write_text(submit.read_text().replace(IDLE_ATTRIBUTE, "Other"))
    world.schedd.waiting = [waiting("mg_000000", 7)]
    look(world)
    assert (left(world), fresh(request).alert_code) == (set(), CODE)
    reported = Event.objects.get(request=request, kind="alert").data["message"]
    assert "they stay, since the DAG was rendered by a former release" in reported and "land elsewhere" not in reported
    assert not DAGHistory.objects.filter(event_type=UNITS_LEAVE).exists()


def test_a_silent_schedd_takes_no_alert_off(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 7)]
    look(world)
    world.schedd.silent = True
    world.cycle()
    request_wake(request)
    world.cycle()
    assert fresh(request).workflow.dags.get().unanswered_since is not None
    assert not Event.objects.filter(request=request, kind="alert_over", data__code=CODE).exists()


def test_the_schedd_is_asked_four_times_in_the_time_however_often_the_request_is_evaluated(world: World) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 1)]
    for _ in range(12):
        world.clock.advance(HOURS / 2)
        request_wake(request)
        world.cycle()
    assert world.schedd.unbegun_asked == 4


def test_what_was_throttled_follows_its_unit_within_minutes(world: World) -> None:
    """Of its jobs one was in the queue; DAGMan submits the next at the same site when that has left."""
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 7)]
    look(world)
    place = job.directory / "mg_000000"
    (place / "proc_000000.post.json").write_text('{"reason": "held: WMS2: idle for 0 s"}')
    (place / "avoid.inc").write_text(f"UNIT_AVOID = {DEAF}\n")
    world.schedd.waiting = [waiting("mg_000000", 0), waiting("mg_000001", 0)]
    world.clock.advance(120)
    write_status(job)
    request_wake(request)
    world.cycle()
    assert left(world) == {"mg_000000"}
    (place / "site.inc").unlink()
    land(job, "mg_000000", "T2_CH_CERN")
    asked = world.schedd.unbegun_asked
    for _ in range(3):
        world.clock.advance(120)
        request_wake(request)
        world.cycle()
    assert world.schedd.unbegun_asked <= asked + 1, "it has left"


def test_where_nothing_runs_anywhere_there_is_no_room_and_no_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request, job = started(world)
    for name in list(job.nodes):
        land(job, name, DEAF)
    monkeypatch.setattr(Job, "count", lambda self, state: 0)
    world.schedd.waiting = [waiting(name, 7) for name in job.nodes]
    look_once(world)
    assert (left(world), fresh(request).alert_code) == (set(), "")


def test_an_operator_has_units_leave_now_over_rest_after_a_preview(world: World) -> None:
    request, job = started(world)
    for unit in job.nodes:
        land(job, unit, DEAF)
    (job.directory / "mg_000001/proc_000000.post.json").write_text('{"job": {"exit_code": 0}}')
    world.schedd.waiting = [waiting(unit, 0.1) for unit in ("mg_000000", "mg_000001", "mg_000002")]
    world.schedd.waiting += [waiting("mg_000002", 0.1, JobStatus=2, WMS2_Site="T2_CH_CERN")]
    world.cycle()
    write_status(job)
    dag = request.workflow.dags.get()
    olga = User.objects.create_superuser("olga")
    rest, browser = APIClient(), Client()
    rest.force_authenticate(olga)
    browser.force_login(olga)
    page = text(browser.get("/admin/dags_app/dag/verb/leave-sites/", {"id": dag.pk}).content.decode())
    assert f"1 work unit at {DEAF}: nothing has begun" in page and "1 unit like that stay" in page
    assert left(world) == set(), "asking does nothing"
    url = f"/api/v1/dags/{dag.pk}/leave-sites"
    for _ in range(2):
        assert rest.post(url, {"reason": "it is down"}, format="json").status_code == 202
    assert left(world) == {"mg_000000"}
    reported = DAGHistory.objects.get(event_type=UNITS_LEAVE).detail
    assert (reported["units"], reported["jobs"], reported["why"]) == (
        ["mg_000000"],
        1,
        f"olga: it is down; 1 work unit at {DEAF}",
    )
    refused = rest.post(url, {"reason": "full", "sites": ["T2_CH_CERN"]}, format="json")
    assert rest.post(url, {"reason": "this one", "units": ["mg_000000"]}, format="json").status_code == 202
    assert rest.post(url, {"reason": "others", "units": ["mg_000001", "mg_000009"]}, format="json").status_code == 409
    assert refused.status_code == 409 and "no unit of which nothing has begun" in refused.content.decode()
    rows = AuditEntry.objects.filter(action="dag_leave_sites", target=str(dag.pk)).order_by("pk")
    assert list(rows.values_list("actor", "outcome")) == [
        ("olga", "done"), ("olga", "done"), ("olga", "refused"), ("olga", "done"), ("olga", "refused")
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["silent", "former", "gone"])
def test_what_cannot_be_known_is_said_and_nothing_leaves(world: World, what: str) -> None:
    request, job = started(world)
    land(job, "mg_000000", DEAF)
    world.schedd.waiting = [waiting("mg_000000", 0.1)]
    world.cycle()
    write_status(job)
    dag = request.workflow.dags.get()
    world.schedd.silent = what == "silent"
    if what == "former":
        (job.directory / PROCESSING_SUBMIT).write_text("queue\n")
    if what == "gone":
        dag.missing_since = clock.now()
    assert leave_preview(dag)[0].startswith("Which units those are is not known")
    with pytest.raises((InvalidTransition, ServiceUnavailable)):
        dag_leave_sites(dag=dag, actor="olga", reason="it is down")
    assert left(world) == set()
    assert AuditEntry.objects.get(action="dag_leave_sites").outcome == "refused"
