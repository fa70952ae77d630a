"""The first page: whether to get up in one sentence, what needs a person by its cause, at a cost that many rows do not raise."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dags_app.models import WorkUnitState
from outputs_app.models import Drift, DriftState, Effect, EffectKind, EffectState
from requests_app.models import Alert, HoldCode, Installation, Lease, ReqMgr2Request, Request, RequestStatus
from sites_app.models import Schedd, ScheddState, Site, SiteStatus
from sites_app.services import site_ban_by_operator, site_change_status
from tests.support.faults import fault
from tests.support.html import links, text
from tests.support.rows import dag_row, drift_row, new_block, request_row, unit_row, workflow_row
from tests.support.scene import Scene
from wms2.conf import conf
from wms2.models import FailingTask, Worker, WorkerPool, WorkerPoolState
from wms2.runtime import levels

pytestmark = pytest.mark.django_db
S = RequestStatus
#: Beside session, user and roles: counts; causes; what is short; problems with ReqMgr2, slots taken without a DAG.
STATEMENTS = 5
#: Those of the head of the queue, which is kept for some seconds: limits, state (2), buckets, stopped; rows, ends, pausing.
QUEUE_STATEMENTS = 8
#: Of six charts, kept for a minute.
CHARTS_STATEMENTS = 6


def shown(client: Client, path: str = "/", part: str | None = None) -> str:
    response = client.get(path)
    assert response.status_code == 200, response.content[:500]
    return text(response.content.decode(), part)


def statements_of(client: Client) -> int:
    """Of one look at the page; but for the database's time, which a process asks for now and then."""
    with CaptureQueriesContext(connection) as captured:
        client.get("/")
    return sum("clock_timestamp()" not in query["sql"][:40] for query in captured.captured_queries)


def effect(request: Request, state: EffectState, **fields: Any) -> Effect:
    return Effect.objects.create(request=request, kind=EffectKind.DBS_BLOCK, key=f"{state}{request.pk}", state=state, **fields)


def test_an_empty_installation_says_so_and_that_nobody_drives_it(reader: Client) -> None:
    said = shown(reader)
    assert "1 thing needs you: the life cycle has stopped." in said
    assert "There are no requests yet." in said
    assert "The life cycle has stopped." in said


def test_a_driven_installation_does_not_complain(reader: Client, built: Scene) -> None:
    assert "The life cycle has stopped" not in shown(reader)
    Lease.objects.update(data={"cycle_ended_at": (timezone.now() - timedelta(hours=1)).isoformat()})
    assert "The life cycle has stopped. The last cycle ended 1 h ago. Look whether the ticker and beat run." in shown(reader)


def test_the_dot_is_told_when_nobody_drives(reader: Client, built: Scene) -> None:
    pages = ("/", f"/requests/{built.active.request_name}/")

    def reported() -> list[str]:
        """For the dot: on each page, whole and as its live part."""
        answers = [reader.get(path, headers=headers) for path in pages for headers in ({}, {"X-Wms2-Part": "live"})]
        return re.findall(r'data-undriven="([^"]*)"', "".join(answer.content.decode() for answer in answers))

    assert reported() == [""] * 4
    Lease.objects.update(owner="")
    assert reported() == ["the life cycle has no leader"] * 4
    Lease.objects.update(owner="worker-1", expires_at=timezone.now() - timedelta(seconds=5))
    assert reported() == ["the life cycle has no leader"] * 4
    Lease.objects.update(data={"cycle_ended_at": (timezone.now() - timedelta(hours=1)).isoformat()})
    assert reported() == ["the life cycle has stopped"] * 4
    Lease.objects.all().delete()
    assert reported() == ["the life cycle has stopped"] * 4


def test_what_needs_a_person_is_grouped_by_its_cause_held_ones_first(reader: Client, built: Scene) -> None:
    html = reader.get("/").content.decode()
    said = text(html, "part-needs")
    places = [said.index(request.request_name) for request in (built.held, built.refused, built.unaccounted)]
    assert places == sorted(places)
    assert "Held: Too many failed work units." in said and "Look at the failures: one site, one input, one step?" in said
    assert "33 of 120 work units were not done" in said
    assert "it is registered, and not as it should be: it lacks 1 files" in said
    assert "manifests are missing or wrong" in said
    assert built.active.request_name not in said
    for link in (each for each in links(html, "part-needs") if "needs=" in each):
        assert reader.get(link).status_code == 200, link


def test_each_reason_alone_brings_a_request_up(reader: Client) -> None:
    calm = request_row(S.ACTIVE)
    held = request_row(S.HELD, hold_code=HoldCode.REFUSED, hold_reason="Step1.Multicore: must be a number")
    alerted = request_row(S.QUEUED, alert_code="slow_queued")
    left = request_row(S.COMPLETED, alert_code="leftovers_stay")
    refused, dead = request_row(S.ACTIVE), request_row(S.ABORTED)
    effect(refused, EffectState.REFUSED, last_error="400 no such dataset")
    effect(dead, EffectState.DEAD, last_error="503 for three days")
    effect(calm, EffectState.PENDING, last_error="503")
    lost = request_row(S.ACTIVE)
    unit_row(dag_row(workflow_row(lost)), state=WorkUnitState.DONE_UNACCOUNTED)

    said = shown(reader, part="part-needs")

    for request in (held, alerted, left, refused, dead, lost):
        assert request.request_name in said
    assert calm.request_name not in said
    assert "Step1.Multicore: must be a number" in said
    assert "400 no such dataset" in said
    assert "503 for three days" in said
    listed = shown(reader, "/requests/?needs=units_unaccounted", part="part-lines")
    assert lost.request_name in listed and held.request_name not in listed


def test_one_sentence_says_whether_to_get_up(reader: Client, built: Scene) -> None:
    first = shown(reader, part="part-first")
    assert first.startswith("5 things need you, the first since ") and "schedd schedd2@wms2.example is silent." in first
    assert first.endswith("1 of them stops more than one request.")
    Schedd.objects.update(unreachable_since=None)
    calmer = shown(reader, part="part-first")
    assert calmer.startswith("4 things need you, the first since ") and calmer.endswith("All else goes on.")
    assert "1 request: Held: Too many failed work units" in calmer


def test_the_queue_says_when_the_next_may_start(reader: Client, built: Scene) -> None:
    said = shown(reader, part="part-work")
    assert built.queued.request_name in said
    assert "60" in said, "jobs that run"


def test_open_alerts_and_the_course_of_each_range_are_shown(reader: Client, built: Scene) -> None:
    now = timezone.now()
    for number, owner in enumerate(("", "olga")):
        Alert.objects.create(
            code="site_closed", subject=f"T2_{number}", severity="critical", since=now, last_seen=now, owner=owner
        )
    assert "Critical 2, 1 owned" in shown(reader, part="part-standing")
    for name in ("6h", "24h", "7d", "30d"):
        html = reader.get(f"/?range={name}").content.decode()
        assert html.count("<figure") == 6 and "Failed attempts by code" in text(html, "part-charts")


def test_old_addresses_of_the_list_lead_there(reader: Client) -> None:
    for query in ("status=held", "search=a&ordering=-priority", "mine=1"):
        assert reader.get(f"/?{query}")["Location"] == f"/requests/?{query}"
    assert reader.get("/?range=7d").status_code == 200


def test_one_that_was_rejected_in_reqmgr2_after_it_completed_is_cleaned_or_kept_with_one_click(
    reader: Client, operator: Client
) -> None:
    request, problem = (
        request_row(S.COMPLETED),
        "it is rejected in ReqMgr2 since it completed here: clean it, or keep what it made",
    )
    ReqMgr2Request.objects.create(name=request.request_name, request=request, status="rejected", problem=problem)
    assert problem in shown(reader, part="part-system")
    assert not [link for link in links(reader.get("/").content.decode()) if "/clean/" in link or "/keep/" in link]
    offered = [link for link in links(operator.get("/").content.decode()) if str(request.pk) in link]
    assert len(offered) == 2
    for link in offered:
        assert operator.get(link).status_code == 200
    page = operator.get(request.get_absolute_url()).content.decode()
    assert f"/reqmgr2/fetch?rid={request.request_name}" in page


def test_an_unaccounted_unit_of_a_request_that_has_ended_needs_nobody(reader: Client) -> None:
    request = request_row(S.ABORTED)
    unit_row(dag_row(workflow_row(request)), state=WorkUnitState.DONE_UNACCOUNTED)
    assert request.request_name not in shown(reader, part="part-needs")


def test_many_of_one_cause_are_one_line_with_its_number_and_a_release_of_all(reader: Client, operator: Client) -> None:
    for number in range(52):
        request_row(S.HELD, hold_code=HoldCode.RESCUES, hold_reason="3 of 3", urgent=number == 7)
    html = reader.get("/").content.decode()
    said = text(html, "part-needs")
    assert "Held: Rescue attempts used up." in said and "and 49 more" in said and "urgent" in said
    assert "/requests/?needs=held%3Arescues" in links(html, "part-needs")
    assert 'data-title="(2) Overview' in html, "they, and the life cycle"
    assert "/bulk/new/?operation=release&needs=held%3Arescues" not in links(html, "part-needs"), "not for readers"
    assert "/bulk/new/?operation=release&needs=held%3Arescues" in links(operator.get("/").content.decode(), "part-needs")


def test_a_silent_schedd_is_told_at_the_top(reader: Client, built: Scene) -> None:
    assert "Schedd schedd2@wms2.example is silent" in shown(reader, part="part-system")
    Schedd.objects.filter(name="schedd2@wms2.example").update(state=ScheddState.DISABLED)
    assert "is silent" not in shown(reader, part="part-system"), "it is gone, and none of ours is there"
    assert "schedd1" not in shown(reader, part="part-system")


def test_sites_that_get_no_new_work_are_named_with_who_why_and_until_when(reader: Client) -> None:
    Site.objects.create(name="T2_GOOD")
    drained = Site.objects.create(name="T2_DRAINED")
    site_change_status(site=drained, status=SiteStatus.DRAINING, actor="olga", reason="downtime")
    ban = site_ban_by_operator(site=Site.objects.create(name="T1_BANNED"), actor="igor", reason="full disk", insist=True)
    said = shown(reader, part="part-system")
    assert "2 sites get no new work" in said and "T2_GOOD" not in said
    assert "T2_DRAINED is draining by olga: downtime" in said
    assert f"T1_BANNED is banned for all by igor until {ban.expires_at:%Y-%m-%d %H:%M} UTC: full disk" in said


def test_every_page_says_that_no_new_work_starts_and_why(reader: Client, built: Scene) -> None:
    levels.use(lambda: levels.KnownLevel(no_new_work="new work is switched off by eva: storage moves"))
    said = "No new work starts; what runs goes on. New work is switched off by eva: storage moves."
    for path in ("/", "/requests/", "/cases/", built.active.get_absolute_url()):
        assert shown(reader, path).count(said) == 1, path
    levels.use(lambda: levels.KnownLevel(levels.Level.STRAINED, "effects at 1.2 times its limit"))
    assert "The service is strained; what can wait is put off. Effects at 1.2 times its limit." in shown(reader)


@fault(
    "all workers stopped",
    done="every worker pool is stopped and no worker has beaten for hours",
    spec="issue: Workers that are stopped or gone",
    afterwards="board, request page, readiness and status say so, each with what is stopped, by whom and since when",
)
def test_pools_that_are_stopped_and_workers_that_are_gone_are_on_board_request_page_readiness_and_status(
    operator: Client, reader: Client, built: Scene
) -> None:
    now = timezone.now()
    Installation.objects.create(instance=conf().instance, environment=conf().environment)
    WorkerPool.objects.update(state=WorkerPoolState.STOPPED, since=now - timedelta(hours=6), reason="eva: the database moves")
    Worker.objects.create(
        name="one", queues=["celery"], started_at=now - timedelta(days=1), heartbeat_at=now - timedelta(hours=5)
    )
    stopped, gone = "Worker pool celery does not do its work: stopped since", "no worker alive since"
    for said in (shown(reader, part="part-needs"), shown(reader, built.active.get_absolute_url())):
        assert stopped in said and gone in said and "eva: the database moves" in said
    assert "Worker pool effects does not do its work" in shown(reader, part="part-needs")
    assert "/admin/wms2/workerpool/celery/change/" in links(operator.get("/").content.decode(), "part-needs")
    ready = reader.get("/readyz").json()["warnings"]["worker pool celery"]
    assert ready.startswith("stopped since") and gone in ready and "eva" not in ready, "anybody may ask"
    reported = reader.get("/api/v1/status").json()["worker_pools"]
    assert (
        set(reported) == set(WorkerPool.objects.values_list("queue", flat=True))
        and "eva: the database moves" in reported["celery"]
    )
    WorkerPool.objects.update(state=WorkerPoolState.RUNNING)
    assert gone in shown(reader, part="part-needs"), "nobody stopped it, and its worker is gone all the same"
    Worker.objects.update(heartbeat_at=now)
    assert "Worker pool" not in shown(reader)


def test_dead_letters_of_every_kind_are_among_what_needs_somebody(reader: Client, operator: Client) -> None:
    now = timezone.now()
    FailingTask.objects.create(name="sites_app.tasks.sync", failures=5, since=now, last_at=now, next_at=now, last_error="no CRIC")
    effect(request_row(S.ACTIVE), EffectState.DEAD, last_error="503 for three days")
    said = shown(reader, part="part-needs")
    assert "1 dead letter: Registration." in said and "1 dead letter: Task of the schedule." in said
    assert "Nothing needs you." not in said
    link = next(each for each in links(operator.get("/").content.decode(), "part-needs") if each.endswith("kind__exact=task"))
    assert "sites_app.tasks.sync" in operator.get(link).content.decode()


def test_differences_from_dbs_and_rucio_need_somebody_until_they_are_accepted(reader: Client) -> None:
    block = new_block()
    drift_row(block), drift_row(block)
    assert "DBS or Rucio hold something else than WMS2 believes." in shown(reader, part="part-needs")
    Drift.objects.update(state=DriftState.ACCEPTED)
    assert "DBS or Rucio hold" not in shown(reader)


@pytest.mark.parametrize("many", [3, 60])
def test_it_costs_the_same_however_many_rows(reader: Client, many: int) -> None:
    for index in range(many):
        request = request_row((S.HELD, S.ACTIVE, S.QUEUED)[index % 3])
        unit_row(dag_row(workflow_row(request)))
        effect(request, EffectState.REFUSED if index % 3 else EffectState.PENDING)
    assert statements_of(reader) == 3 + STATEMENTS + QUEUE_STATEMENTS + CHARTS_STATEMENTS


def test_the_head_of_the_queue_and_the_charts_are_read_once_for_all_readers(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requests_app.selectors.admission.CACHED_SECONDS", 600.0)
    monkeypatch.setattr("requests_app.pages.cached.CACHED_SECONDS", 600.0)
    request_row(S.QUEUED)
    reader.get("/")
    assert statements_of(reader) == 3 + STATEMENTS


def test_the_live_part_is_the_page_without_its_frame_and_is_not_kept(reader: Client, built: Scene) -> None:
    for path, part in (("/", "part-states"), ("/requests/", "part-statuses")):
        page, live = reader.get(path), reader.get(path, headers={"X-Wms2-Part": "live"})
        assert "<html" in page.content.decode()
        assert "<html" not in live.content.decode()
        assert text(live.content.decode(), part) == text(page.content.decode(), part)
        assert "no-store" in live["Cache-Control"]
        assert "X-Wms2-Part" in live["Vary"]


def test_texts_from_outside_are_shown_as_text(reader: Client) -> None:
    request_row(S.HELD, hold_reason="<script>alert(1)</script>", campaign="<b>bold</b>", prep_id='"><img src=x>')
    for path in ("/", "/requests/"):
        html = reader.get(path).content.decode()
        assert "<script>alert" not in html
        assert "<b>bold" not in html
        assert "<img src=x" not in html
        assert "&lt;script&gt;" in html


def test_operators_and_administrators_find_flower_where_there_is_one(
    operator: Client, staff: Client, reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others cannot open it."""
    chief = Client()
    chief.force_login(User.objects.create_superuser("chief"))
    assert "Flower" not in chief.get("/").content.decode()
    monkeypatch.setenv("WMS2_FLOWER_URL", "http://127.0.0.1:5555/")
    conf.cache_clear()
    for one in (chief, operator):
        assert '<a href="http://127.0.0.1:5555/"' in one.get("/").content.decode()
    for other in (staff, reader):
        assert "Flower" not in other.get("/").content.decode()
