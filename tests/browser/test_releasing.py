"""A held request is released with two clicks and a reason, and the way back is where one lands."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from requests_app.models import Request, RequestStatus
from tests.support import scene
from tests.support.browser import Window

#: Each click in turn, also on the pages that follow.
COUNT = "addEventListener('click', () => { sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1; }, true);"


@pytest.mark.dear("a person's way through the form of an operation")
def test_release_takes_two_clicks_and_a_reason(desk: Window, tmp_path: Any) -> None:
    held = scene.build(tmp_path).held
    desk.page.add_init_script(COUNT)
    desk.go(f"/requests/{held.request_name}/")
    desk.page.get_by_role("link", name="Release …").click()
    expect(desk.page.get_by_label("Events per job")).to_be_hidden()  # folded
    desk.page.get_by_label("Reason:").fill("the site is repaired")
    desk.page.get_by_role("button", name="Release").click()
    expect(desk.page.get_by_role("status").filter(has_text="It is Queued now.")).to_be_visible()
    expect(desk.page.get_by_role("link", name="Take it back: Hold …")).to_be_visible()
    assert desk.page.url.endswith(f"/requests/{held.request_name}/")
    assert desk.page.evaluate("sessionStorage.clicks") == "2"
    assert Request.objects.get(pk=held.pk).status == RequestStatus.QUEUED
