"""Sites: who closed one, why and until when, how jobs do there, what waits, and a ban two clicks away."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dags_app.models import Leftover, Sample, WorkUnitState
from requests_app.models import RequestStatus
from sites_app.models import Site, SiteBan, SiteRse, SiteStatus
from sites_app.services import site_ban_by_operator, site_change_status, site_unban_by_operator
from tests.support.html import links, text
from tests.support.rows import dag_row, generation_spec, request_row, unit_row, workflow_row
from tests.support.scene import Scene
from tests.support.statements import statements_of

pytestmark = pytest.mark.django_db
NAME = "T2_DE_DESY"
PAGE = f"/sites/{NAME}/"


@pytest.fixture
def site(db: Any) -> Site:
    for name in ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue"):
        Site.objects.create(name=name)
    return Site.objects.create(name=NAME, total_slots=900, running_slots=400)


def test_who_closed_a_site_why_and_until_when_also_when_that_is_over(reader: Client, site: Site) -> None:
    until = timezone.now() + timedelta(hours=5)
    site_ban_by_operator(site=site, actor="dan", reason="its storage lost a pool", expires_at=until)
    site_unban_by_operator(site=site, actor="olga", reason="repaired")
    site_change_status(site=site, status=SiteStatus.DRAINING, actor="olga", reason="new routers", drain_until=until)
    listed = text(reader.get("/sites/").content.decode())
    assert listed.index("DESY") < listed.index("FNAL"), "closed ones come first"
    said = text(reader.get(PAGE).content.decode())
    assert f"Draining by olga until {until:%Y-%m-%d %H:%M:%S} UTC: new routers" in said
    for expected in ("ended by olga", "its storage lost a pool", "site change status"):
        assert expected in said


def test_how_jobs_did_there_in_an_hour_a_day_a_week(reader: Client, site: Site) -> None:
    dag = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)))
    now = timezone.now()
    for index, hours in enumerate((0.5, 20, 100, 300)):
        unit_row(
            dag, index, state=WorkUnitState.DONE, manifest_sha256="a", fence=1, site=NAME, done_at=now - timedelta(hours=hours)
        )
    Sample.objects.create(seconds=0, at=now - timedelta(minutes=20), by="all", site=NAME, code=8021, failures=3)
    said = text(reader.get(PAGE).content.decode(), "part-head")
    assert "1 h 75.0 %" in said and "9 jobs, 3 failed" in said
    assert "24 h 85.7 %" in said and "18 jobs, 3 failed" in said
    assert "7 d 90.0 %" in said and "27 jobs, 3 failed" in said
    assert "85.7 %" in text(reader.get("/sites/").content.decode())


def test_what_waits_there_too_long_and_what_can_run_nowhere_else(reader: Client, site: Site) -> None:
    def running(hours: float, **spec: Any) -> str:
        request = request_row(RequestStatus.ACTIVE)
        since = (timezone.now() - timedelta(hours=hours)).isoformat()
        jobs = {"roles": {}, "sites": {NAME: {"idle": 40}}, "waits": {NAME: since}}
        dag_row(workflow_row(request, generation_spec(request.request_name, **spec)), jobs=jobs)
        return request.request_name

    long, short = running(30), running(3, site_whitelist=(NAME,))
    page = reader.get(PAGE).content.decode()
    waiting, alone = text(page, "part-waiting"), text(page, "part-alone")
    assert long in waiting and short not in waiting
    assert short in alone and long not in alone


def test_storage_and_what_is_left_there(reader: Client, site: Site) -> None:
    now = timezone.now()
    SiteRse.objects.create(site=site, rse="T2_DE_DESY_Tape", seen_at=now)
    unit = unit_row(dag_row(workflow_row(request_row(RequestStatus.ACTIVE))))
    Leftover.objects.create(unit=unit, site=NAME, next_try_at=now, tries=2)
    said = text(reader.get(PAGE).content.decode(), "part-head")
    assert "T2_DE_DESY_Tape" in said and "1 work unit to be cleaned, 1 failing" in said


def test_a_site_is_banned_in_two_clicks_with_a_reason(reader: Client, operator: Client, site: Site) -> None:
    ban = next(link for link in links(operator.get(PAGE).content.decode()) if "/verb/ban/" in link)  # the first click
    form = operator.get(ban)
    seen = re.search(r'name="seen" value="([^"]*)"', form.content.decode())
    assert NAME in text(form.content.decode()) and seen
    done = operator.post(ban.partition("?")[0], {"id": NAME, "seen": seen[1], "reason": "its jobs fail", "back": PAGE})
    assert (done.status_code, done["Location"]) == (302, PAGE)  # the second
    assert "its jobs fail" in text(reader.get(PAGE).content.decode(), "part-bans")
    assert not [link for link in links(reader.get(PAGE).content.decode()) if "/verb/" in link]


def test_its_lists_are_had_as_json_and_csv(operator: Client, site: Site) -> None:
    workflow = workflow_row(request_row(RequestStatus.ACTIVE), generation_spec("r", site_whitelist=(NAME,)))
    site_ban_by_operator(site=site, actor="dan", reason="=slow", workflow=workflow, insist=True)
    page = operator.get(PAGE).content.decode()

    def listed(name: str) -> list[dict[str, Any]]:
        [address] = [link for link in links(page, f"part-{name}") if link.endswith("format=json")]
        return list(operator.get(f"{PAGE}{address}").json()[name])

    [ban] = listed("bans")
    assert (ban["state"], ban["request_name"], ban["created_by"]) == ("in force", workflow.request_id, "dan")
    assert [each["request_name"] for each in listed("alone")] == [workflow.request_id]
    assert [each["action"] for each in listed("audit")] == ["site_ban"]
    head, line = operator.get(f"{PAGE}?list=bans&format=csv").content.decode().splitlines()
    assert head.startswith("state,request_name,reason,") and "'=slow" in line
    assert operator.get(f"{PAGE}?list=bans&format=xml").status_code == 404
    assert operator.get(f"{PAGE}?list=jobs&format=csv").status_code == 404


def test_a_wrong_filter_is_said_and_an_unknown_site_is_not_there(reader: Client, site: Site) -> None:
    wrong = reader.get("/sites/?status=gone")
    assert wrong.status_code == 400
    assert "status:" in text(wrong.content.decode())
    assert reader.get("/sites/T9_NO_Where/").status_code == 404


def test_the_pages_cost_the_same_with_many_rows(operator: Client, built: Scene) -> None:
    before = [len(statements_of(operator, path)) for path in ("/sites/", PAGE)]
    for number in range(20):
        name = f"T3_XX_Site{number}"
        site_ban_by_operator(site=Site.objects.create(name=name), actor="dan", reason="slow", insist=True)
        workflow = workflow_row(request_row(RequestStatus.ACTIVE), generation_spec(name, site_whitelist=(NAME,)))
        SiteBan.objects.create(site_id=NAME, workflow=workflow, reason="x", expires_at=timezone.now() + timedelta(days=1))
    assert [len(statements_of(operator, path)) for path in ("/sites/", PAGE)] == before
    assert max(before) <= 8, before
