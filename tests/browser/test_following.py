"""A person at the browser: signs in, follows a request of the demo from its import to COMPLETED, and aborts another.

The pages come from the test's database, in which a life cycle that is a process of its own drives real DAGs on the pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Locator, expect

from requests_app.models import Request
from tests.support.browser import Window, window
from tests.support.outcomes import assert_aborted, assert_completed_once, imported
from tests.support.side_by_side import PATIENCE
from tests.support.stack import worker
from wms2.models import AuditEntry

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
SECOND = 1000.0 * PATIENCE


@pytest.fixture
def desk(chromium: Browser, live_server: Any) -> Iterator[Window]:
    """A window; whatever the browser complains of fails the test."""
    with window(chromium, live_server.url) as opened:
        yield opened
        assert opened.complaints == []


def sign_in(desk: Window, user: User) -> None:
    desk.go("/requests/")
    desk.page.get_by_label("User name").fill(user.username)
    desk.page.get_by_label("Password").fill("opensesame")
    desk.page.get_by_role("button", name="Sign in").click()
    expect(desk.page.get_by_role("heading", name="Requests", exact=True).last).to_be_visible()


def row_of(desk: Window, request: Request) -> Locator:
    """The request's line of the board. Its name is shown with places where a line may break."""
    return desk.page.locator("tr").filter(has=desk.page.locator(f"a[href='/requests/{request.request_name}/']"))


def badge(desk: Window) -> Locator:
    """The status at the head of a request's page."""
    return desk.page.locator("#part-head .status-line .badge").first


@pytest.mark.dear("the only request that a person follows in a browser from its import to COMPLETED")
def test_a_request_is_followed_to_completed_without_the_page_being_loaded_again(
    ready: None, desk: Window, operator: User
) -> None:
    sign_in(desk, operator)
    desk.go("/")
    expect(desk.page.get_by_text("The life cycle has stopped.", exact=True)).to_be_visible()
    desk.go("/requests/")
    request = imported(events=40)
    expect(row_of(desk, request)).to_contain_text("Submitted", timeout=30 * SECOND)  # by itself: the board looks again
    with worker():
        expect(desk.page.locator("#pulse")).to_have_text("live", timeout=60 * SECOND)
        row_of(desk, request).get_by_role("link").first.click()
        desk.page.evaluate("window.opened_once = true")
        expect(badge(desk)).to_have_text("Active", timeout=90 * SECOND)
        units = desk.page.locator("#part-progress ol.units li")
        expect(units.first).to_be_visible(timeout=30 * SECOND)
        expect(desk.page.locator("#part-dag h2")).to_contain_text("Current DAG", timeout=30 * SECOND)
        expect(badge(desk)).to_have_text("Completed", timeout=300 * SECOND)
    expect(desk.page).to_have_title(re.compile("^Completed: "))
    expect(desk.page.locator("#part-progress")).to_contain_text("100.0 % of the events")
    expect(desk.page.locator("#part-progress ol.units li.unit-done")).to_have_count(units.count())
    expect(desk.page.locator("#part-blocks tbody tr").first).to_contain_text("Archived")
    expect(desk.page.locator("#part-effects")).to_contain_text("Nothing is owed to DBS and Rucio.")
    expect(desk.page.locator("#part-dag h2")).to_contain_text("Last DAG")
    steps = desk.page.locator("#part-history .timeline .badge").all_inner_texts()
    assert list(reversed(steps)) == [
        "Submitted", "Queued", "Planning", "Active", "Validating outputs", "Validated outputs", "Removing files", "Completed",
    ]  # fmt: skip
    assert desk.page.evaluate("window.opened_once"), "the page was loaded again instead of updating itself"
    assert_completed_once(request)


@pytest.mark.deep("tests/requests_app/admin/test_verbs.py::test_an_abort_with_a_reason_is_recorded_with_name_and_reason")
def test_a_running_request_is_aborted_through_the_page_that_asks_for_confirmation(
    ready: None, desk: Window, operator: User
) -> None:
    request = imported(events=200)
    sign_in(desk, operator)
    with worker():
        desk.go(f"/requests/{request.request_name}/")
        expect(badge(desk)).to_have_text("Active", timeout=90 * SECOND)
        desk.page.get_by_text("More", exact=True).click()
        desk.page.get_by_role("link", name="Abort …").click()
        expect(desk.page.get_by_text("jobs that run now are lost")).to_be_visible()
        desk.page.get_by_role("button", name="Abort").click()
        expect(desk.page.locator(".errorlist").first).to_be_visible()
        assert [reported for reported in desk.complaints if "400" not in reported] == []
        desk.complaints.clear()  # the browser's word on the refusal just seen
        assert not AuditEntry.objects.filter(target=request.request_name, action="request_abort").exists()
        desk.page.get_by_label("Reason:").fill("wrong global tag")
        desk.page.get_by_role("button", name="Abort").click()
        expect(desk.page.get_by_text(re.compile("aborted|Stopping|Abort")).first).to_be_visible()
        desk.go(f"/requests/{request.request_name}/")
        expect(badge(desk)).to_have_text("Aborted", timeout=120 * SECOND)
    expect(desk.page.locator("#part-history")).to_contain_text("wrong global tag")
    expect(desk.page.locator("#part-history")).to_contain_text("by olga")
    assert desk.page.get_by_role("link", name="Abort …").count() == 0
    assert AuditEntry.objects.get(target=request.request_name, action="request_abort").actor == "olga"
    assert_aborted(request)
