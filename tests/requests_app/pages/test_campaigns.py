"""Campaigns: how far they are and what is held, from counts that the database keeps while requests and their work change."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from dags_app.models import FailureGroup, WorkUnit, WorkUnitState
from requests_app.models import Campaign, CampaignCount, HoldCode, Request, RequestStatus, Workflow
from requests_app.selectors.campaigns import standings
from tests.support.html import links, text
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.scene import ERA, Scene
from tests.support.statements import statements_of
from wms2.metrics.row_counts import counts_fold

pytestmark = pytest.mark.django_db
S = RequestStatus


def campaign_request(campaign: str, *, asked: int, done: int, status: RequestStatus = S.ACTIVE) -> Request:
    """One with units done that made so many events, eight jobs each, and another unit that is planned."""
    request = request_row(status, campaign=campaign)
    workflow = workflow_row(request, requested_events=asked)
    dag = dag_row(workflow)
    unit_row(dag, state=WorkUnitState.DONE, events=done, manifest_sha256="a", fence=1)
    unit_row(dag, 1, events=50, manifest_sha256="b", fence=1)
    return request


def counted(campaign: str) -> tuple[int, int, int, int, dict[str, int]]:
    found = standings([campaign])[campaign]
    return found.asked, found.done, found.jobs, found.failed, +found.requests


def test_what_is_asked_for_done_and_failed_follows_requests_workflows_and_units() -> None:
    first, second = campaign_request("Run3", asked=1000, done=300), campaign_request("Run3", asked=500, done=100)
    assert Campaign.objects.get().name == "Run3"
    assert counted("Run3") == (1500, 400, 18, 0, {"active": 2})

    WorkUnit.objects.filter(state=WorkUnitState.PLANNED).update(state=WorkUnitState.DONE)
    Workflow.objects.filter(request=second).update(requested_events=600)
    times = dict.fromkeys(("first_at", "last_at"), first.created_at)
    FailureGroup.objects.create(workflow=first.workflow, category="data", code=8021, attempts=4, **times)
    FailureGroup.objects.update(attempts=6)
    assert counted("Run3") == (1600, 500, 36, 6, {"active": 2})

    Request.objects.filter(pk=second.pk).update(status=S.ABORTED)
    assert counted("Run3") == (1000, 350, 36, 6, {"active": 1, "aborted": 1}), "what was aborted is asked for no more"
    Request.objects.filter(pk=second.pk).update(status=S.ACTIVE)
    Request.objects.filter(pk=first.pk).update(campaign="Other")
    assert counted("Run3") == (600, 150, 18, 0, {"active": 1})
    assert counted("Other") == (1000, 350, 18, 6, {"active": 1})

    counts_fold("campaign_counts", "campaign")
    assert counted("Other") == (1000, 350, 18, 6, {"active": 1})
    kinds = list(CampaignCount.objects.values_list("campaign", "kind"))
    assert len(kinds) == len(set(kinds)) == 9
    CampaignCount.objects.create(campaign="Other", kind="lumis", number=7)
    assert counted("Other") == (1000, 350, 18, 6, {"active": 1}), "a later release counts more"


def test_a_campaign_is_a_click_away_with_its_progress_what_is_held_and_whose_it_is(reader: Client, operator: Client) -> None:
    campaign_request("Run3", asked=1000, done=300)
    held = request_row(S.HELD, campaign="Run3", hold_code=HoldCode.THRESHOLD, hold_reason="33 of 120 work units were not done")
    request_row(S.COMPLETED, campaign="AllDone")
    Campaign.objects.filter(pk="Run3").update(owner="HIG")

    said = text(reader.get("/campaigns/").content.decode())
    assert said.index("Run3") < said.index("AllDone"), "what is open comes first"
    assert "300 of 1,000" in said

    said = text(reader.get("/campaigns/Run3/").content.decode())
    for expected in ("events done, 30 %", "HIG", held.request_name, "Too many failed work units", "33 of 120 work units"):
        assert expected in said, said
    assert "Describe" not in said
    assert "Describe" in text(operator.get("/campaigns/Run3/").content.decode())
    assert reader.get("/campaigns/NotThere/").status_code == 404


def test_a_search_for_a_campaign_is_in_the_address_and_a_wrong_one_is_said(reader: Client) -> None:
    for name in ("Run3Winter", "Run2Legacy"):
        request_row(S.ACTIVE, campaign=name)
    said = text(reader.get("/campaigns/?search=winter").content.decode())
    assert "Run3Winter" in said and "Run2Legacy" not in said
    wrong = reader.get(f"/campaigns/?owner={'x' * 300}")
    assert wrong.status_code == 400
    assert "owner:" in text(wrong.content.decode())


def test_its_lists_are_had_as_json_and_csv(reader: Client) -> None:
    held = request_row(S.HELD, campaign="Run3", hold_code=HoldCode.THRESHOLD, hold_reason="33 of 120 work units")
    page = "/campaigns/Run3/"
    json_, csv = (next(link for link in links(reader.get(page).content.decode(), "part-held") if link.endswith(end))
                  for end in ("format=json", "format=csv"))  # fmt: skip
    [row] = reader.get(f"{page}{json_}").json()["held"]
    assert (row["request_name"], row["hold_code"]) == (held.request_name, "threshold")
    assert "33 of 120 work units" in reader.get(f"{page}{csv}").content.decode()
    assert reader.get(f"{page}?list=statuses&format=json").json()["statuses"] == [{"status": "held", "requests": 1}]


def test_its_pages_and_their_json_cost_the_same_with_many_requests(reader: Client, built: Scene) -> None:
    paths = ("/campaigns/", f"/campaigns/{ERA}/", "/api/v1/campaigns")
    before = [len(statements_of(reader, path)) for path in paths]
    for number in range(30):
        request_row(S.HELD, campaign=f"Campaign{number % 5}")
        request_row(S.HELD, campaign=ERA)
    assert [len(statements_of(reader, path)) for path in paths] == before
    assert max(before) <= 8
    answer: Any = reader.get(f"/api/v1/campaigns/{ERA}").json()
    assert answer["standing"]["requests"]["held"] > 30
