"""Pages that hear of what happens: the tabs of a browser share one stream, and poll without it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser

from requests_app.feed import emit_event
from requests_app.models import RequestStatus
from tests.support.browser import window
from tests.support.rows import request_row
from tests.support.streams import streaming

TABS = 10


def test_ten_tabs_share_one_stream_show_what_happens_and_an_eleventh_opens(
    chromium: Browser, live_server: Any, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with streaming(monkeypatch) as stream, window(chromium, live_server.url) as first:
        first.sign_in_as(operator)
        first.go("/")
        tabs = [first.page, *(first.page.context.new_page() for _ in range(TABS - 1))]
        for tab in tabs[1:]:
            tab.goto(f"{live_server.url}/", wait_until="load")
        while stream.readers != 1:
            tabs[-1].wait_for_timeout(100)
        request = request_row(RequestStatus.QUEUED, request_name="olga_new_one")
        emit_event("request.status", request)
        for tab in tabs:
            tab.get_by_text("olga_new_one").first.wait_for(timeout=25_000)
        assert stream.readers == 1
        first.go("/admin/")  # the tab that held it goes on to a page without one
        while stream.readers != 1:
            tabs[-1].wait_for_timeout(100)
        eleventh = first.page.context.new_page()
        eleventh.goto(f"{live_server.url}/", wait_until="load")
        assert eleventh.get_by_text("olga_new_one").first.is_visible()
        assert first.complaints == []


def test_while_a_stream_stands_a_page_asks_when_something_happens_and_else_twice_a_minute(
    chromium: Browser, live_server: Any, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the page's own clock, which the test moves."""
    with streaming(monkeypatch) as stream, window(chromium, live_server.url) as opened:
        page, asked = opened.page, []
        page.on("request", lambda request: asked.append(request) if "x-wms2-part" in request.headers else None)
        opened.sign_in_as(operator)
        page.clock.install()
        opened.go("/")
        page.clock.run_for(5_500)
        with page.expect_response(lambda answer: "x-wms2-part" in answer.request.headers):  # once the stream is open
            pass
        assert stream.readers == 1
        page.clock.run_for(20_000)
        before = len(asked)
        page.clock.run_for(5_000)
        assert len(asked) == before, "nothing happened"
        emit_event("alert")
        while len(asked) == before:
            page.clock.run_for(1_000)
            page.wait_for_timeout(100)
        while len(asked) < before + 2:  # for what no event says
            page.clock.run_for(5_000)
            page.wait_for_timeout(100)
