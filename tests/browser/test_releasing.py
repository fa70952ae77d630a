"""A held request is released with two clicks and a reason, and the way back is where one lands."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect

from requests_app.models import Request, RequestStatus
from tests.support import scene
from tests.support.browser import window

#: Each click in turn, also on the pages that follow.
COUNT = "addEventListener('click', () => { sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1; }, true);"


@pytest.mark.dear("a person's way through the form of an operation")
def test_release_takes_two_clicks_and_a_reason(
    chromium: Browser, live_server: Any, transactional_db: Any, operator: User, tmp_path: Any
) -> None:
    held = scene.build(tmp_path).held
    with window(chromium, live_server.url) as opened:
        opened.sign_in_as(operator)
        opened.page.add_init_script(COUNT)
        opened.go(f"/requests/{held.request_name}/")
        opened.page.get_by_role("link", name="Release …").click()
        expect(opened.page.get_by_label("Events per job")).to_be_hidden()  # folded
        opened.page.get_by_label("Reason:").fill("the site is repaired")
        opened.page.get_by_role("button", name="Release").click()
        expect(opened.page.get_by_role("status").filter(has_text="It is Queued now.")).to_be_visible()
        expect(opened.page.get_by_role("link", name="Take it back: Hold …")).to_be_visible()
        assert opened.page.url.endswith(f"/requests/{held.request_name}/")
        assert opened.page.evaluate("sessionStorage.clicks") == "2"
        assert opened.complaints == []
    assert Request.objects.get(pk=held.pk).status == RequestStatus.QUEUED
