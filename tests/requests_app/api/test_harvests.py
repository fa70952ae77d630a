"""DQM harvestings over REST, on the pages and in the metrics; what an operator does about them."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from requests_app.models import Harvest, HarvestState, Request, RequestStatus
from tests.support.html import text
from tests.support.rows import request_row, workflow_row
from tests.support.scraping import scrape, value
from tests.support.web_clients import reader as browser
from wms2.models import AuditEntry

__all__ = ["browser"]
pytestmark = pytest.mark.django_db
URL = "/api/v1/harvests"


@pytest.fixture(name="request_row_")
def _request() -> Request:
    return workflow_row(request_row(RequestStatus.COMPLETED)).request


def harvest(request: Request, run: int, state: HarvestState, **fields: object) -> Harvest:
    values = {"dataset": "/A/B-v1/DQMIO", "next_try_at": timezone.now(), **fields}
    return Harvest.objects.create(request=request, run=run, state=state, **values)


def test_what_failed_is_listed_told_and_done_again(operator: APIClient, browser: Client, request_row_: Request) -> None:
    failed = harvest(request_row_, 1, HarvestState.FAILED, problem="HTTP 503", attempts=8)
    harvest(
        request_row_,
        2,
        HarvestState.DONE,
        uploads=[{"name": "DQM_V0001_R000000002__A__B-v1__DQMIO.root", "url": "https://d/dqm"}],
    )
    found = scrape(operator)
    assert [value(found, "wms2_harvests", state=state) for state in ("waiting", "running", "failed")] == [0, 0, 1]
    (row,) = operator.get(f"{URL}?state=failed&request={request_row_.request_name}").json()["results"]
    assert (row["id"], row["run"], row["problem"], row["site"]) == (failed.pk, 1, "HTTP 503", None)

    said = text(browser.get(f"/requests/{request_row_.request_name}/").content.decode(), "part-harvests")
    assert "HTTP 503" in said
    assert "DQM_V0001_R000000002__A__B-v1__DQMIO.root to https://d/dqm" in said
    needs = text(browser.get("/").content.decode(), "part-needs")
    assert request_row_.request_name in needs
    assert "DQM harvesting has failed" in needs

    answer = operator.post(f"{URL}/{failed.pk}/retry", {"reason": "the server is up again"})
    assert (answer.status_code, answer.json()["state"], answer.json()["attempts"]) == (202, "waiting", 0)
    assert AuditEntry.objects.get().action == "harvest_retry"
    assert "DQM harvesting" not in text(browser.get("/").content.decode(), "part-needs")


def test_one_whose_job_runs_is_not_given_up(operator: APIClient, request_row_: Request) -> None:
    running = harvest(request_row_, 1, HarvestState.RUNNING)
    answer = operator.post(f"{URL}/{running.pk}/discard", {"reason": "nobody wants it"})
    assert answer.status_code == 409
    assert "Its job runs" in answer.json()["detail"]
    waiting = harvest(request_row_, 2, HarvestState.WAITING)
    assert operator.post(f"{URL}/{waiting.pk}/discard", {"reason": "nobody wants it"}).json()["state"] == "discarded"
