"""Leases, evaluations and requests of ReqMgr2 in the admin: what the rows are, in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client
from django.utils import timezone

from requests_app.models import LEADER_LEASE, EvaluationLease, Lease, Progress, ReqMgr2Request, Request
from requests_app.selectors.reqmgr2 import POLL
from tests.support.html import links, text
from tests.support.rows import request_row

pytestmark = pytest.mark.django_db
EVALUATIONS = "/admin/requests_app/evaluationlease/"
DUE = datetime(2027, 2, 3, 4, 5, 6, tzinfo=UTC)


def shown(client: Client, path: str, part: str = "content") -> str:
    return text(client.get(path).content.decode(), part)


def test_the_list_of_leases_says_who_leads_and_which_row_is_no_lease(staff: Client) -> None:
    Lease.objects.create(name=LEADER_LEASE, owner="host-a", epoch=3, heartbeat_at=timezone.now())
    Lease.objects.create(name=POLL, heartbeat_at=timezone.now())
    said = shown(staff, "/admin/requests_app/lease/", "result_list")
    assert "lifecycle the right to run the life cycle: its owner leads host-a" in said
    assert "reqmgr2 no lease: the heartbeat is when ReqMgr2 was last asked with success" in said
    page = shown(staff, f"/admin/requests_app/lease/{POLL}/change/")
    assert "nobody" not in page
    assert "lifecycle: host-a (epoch 3)" in shown(staff, f"/admin/requests_app/lease/{LEADER_LEASE}/change/")


def test_an_evaluation_says_that_something_may_wake_it_before(staff: Client) -> None:
    EvaluationLease.objects.create(request=request_row(), due_at=DUE)
    said = shown(staff, EVALUATIONS, "result_list")
    assert "Looked at again when something wakes it, at the latest" in said
    assert "2027-02-03 04:05:06 UTC" in said


@pytest.mark.parametrize("due_at", [None, DUE])
def test_the_link_to_an_evaluation_has_words(staff: Client, due_at: datetime | None) -> None:
    row = EvaluationLease.objects.create(request=request_row(), due_at=due_at)
    html = staff.get(EVALUATIONS).content.decode()
    assert f"{EVALUATIONS}{row.pk}/change/" in links(html)
    assert ("only when something wakes it" in text(html, "result_list")) is (due_at is None)
    assert ("looked at again when something wakes it" in shown(staff, f"{EVALUATIONS}{row.pk}/change/")) is (due_at is None)


def test_a_requests_page_says_when_it_is_looked_at_again(staff: Client) -> None:
    row: Request = request_row()
    page = f"/admin/requests_app/request/{row.pk}/change/"
    EvaluationLease.objects.create(request=row, due_at=DUE)
    assert "last never; again when something wakes it, at the latest 2027-02-03 04:05:06 UTC; lease 0 of nobody" in shown(
        staff, page
    )
    assert "(spec" not in shown(staff, page)


def test_reqmgr2_is_spelled_as_people_write_it_and_a_clone_to_be_made_can_be_opened(staff: Client) -> None:
    ReqMgr2Request.objects.create(problem="not there yet")
    html = staff.get("/admin/requests_app/reqmgr2request/").content.decode()
    assert "Select ReqMgr2 request to view" in text(html)
    assert "a clone to be made" in text(html, "result_list")


def test_summaries_of_progress_are_counted_in_words(staff: Client) -> None:
    counters = dict.fromkeys(("units", "units_done", "units_failed", "jobs_idle", "jobs_running", "jobs_held"), 1)
    Progress.objects.create(request=request_row(), at=DUE, first_at=DUE, peak_running=1, job_seconds=1, **counters)
    said = shown(staff, "/admin/requests_app/progress/")
    assert "1 progress summary" in said
    assert "2027-02-03 04:05:06 UTC" in said
