"""Leases and requests of ReqMgr2 in the admin: what the rows are, in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client
from django.utils import timezone

from requests_app.models import LEADER_LEASE, EvaluationLease, Lease, ReqMgr2Request, Request
from requests_app.selectors.reqmgr2 import POLL
from tests.support.html import text
from tests.support.rows import request_row

pytestmark = pytest.mark.django_db
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


def test_a_requests_page_says_when_it_is_looked_at_again(staff: Client) -> None:
    row: Request = request_row()
    page = f"/admin/requests_app/request/{row.pk}/change/"
    EvaluationLease.objects.create(request=row, due_at=DUE)
    assert "last never; again when something wakes it, at the latest 2027-02-03 04:05:06 UTC; lease 0 of no process" in shown(
        staff, page
    )
    assert "(spec" not in shown(staff, page)


def test_reqmgr2_is_spelled_as_people_write_it_and_a_clone_to_be_made_can_be_opened(staff: Client) -> None:
    ReqMgr2Request.objects.create(problem="not there yet")
    html = staff.get("/admin/requests_app/reqmgr2request/").content.decode()
    assert "Select ReqMgr2 request to view" in text(html)
    assert "a clone to be made" in text(html, "result_list")
