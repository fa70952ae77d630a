"""Selecting requests and doing an operation to them in a browser: by mouse and keyboard, while the list looks again."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from requests_app.models import HoldCode, Request, RequestStatus
from tests.support.browser import Window
from tests.support.rows import request_row
from tests.support.side_by_side import PATIENCE
from wms2.models import BulkRun
from wms2.work.bulk import bulk_go_on

pytestmark = pytest.mark.slow
SECOND = 1000 * PATIENCE


def test_a_selection_outlasts_the_lists_next_look_and_becomes_a_run(desk: Window) -> None:
    held = {"hold_code": HoldCode.RESCUES, "hold_reason": "3 of 3"}
    first, second, third = (request_row(RequestStatus.HELD, request_name=name, **held) for name in ("a_1", "b_2", "c_3"))
    desk.go("/requests/?status=held")
    page = desk.page
    page.get_by_label("Select a_1").check()
    page.get_by_label("Select b_2").focus()
    page.keyboard.press("Space")
    Request.objects.filter(pk=third.pk).update(priority=4711)
    expect(page.get_by_text("4,711")).to_be_visible(timeout=30 * SECOND)  # by itself: the list looked again
    expect(page.get_by_label("Select a_1")).to_be_checked()
    expect(page.get_by_label("Select b_2")).to_be_checked()
    page.get_by_role("button", name="The selected …").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Release: 2 requests")
    page.get_by_label("Reason").fill("the sites are back")
    page.get_by_role("button", name="Release 2").click()
    expect(page.locator("#part-run")).to_contain_text("0 of 2 settled")
    bulk_go_on(seconds=60)
    expect(page.locator("#part-run")).to_contain_text("2 of 2 settled", timeout=30 * SECOND)
    expect(page.locator("#part-items")).to_contain_text("Done")
    assert set(BulkRun.objects.get().items.values_list("name", flat=True)) == {first.request_name, second.request_name}
    assert Request.objects.get(pk=third.pk).status == RequestStatus.HELD
