"""The header by keyboard, and moments in UTC or in the browser's own time, remembered."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.support import scene
from tests.support.browser import Window


def test_the_slash_finds_enter_opens_and_the_clock_is_kept(desk: Window, tmp_path: Any) -> None:
    built = scene.build(tmp_path)
    name = built.completed.request_name
    page = desk.page
    for path in ("/", "/admin/requests_app/request/"):
        desk.go(path)
        page.keyboard.press("/")
        expect(page.locator("#find")).to_be_focused()
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text(name)
    page.locator("#find").focus()
    page.keyboard.type("a/b")
    expect(page.locator("#find")).to_have_value("a/b")
    moment = page.locator("section", has=page.locator("#history")).locator("time").first
    expect(moment).to_contain_text("UTC")
    page.get_by_role("button", name="UTC").click()
    expect(moment).to_contain_text("+00:00")
    desk.go("/")
    expect(page.get_by_role("button", name="local time")).to_be_visible()
    desk.go("/admin/")
    page.get_by_text("All tables").click()
    page.get_by_label("Only those with").fill("work uni")
    expect(page.locator("#all-tables li:visible")).to_have_text(["Work unit claims", "Work units", "Block work units"])
    page.get_by_role("button", name="local time").click()
    assert page.evaluate("document.documentElement.dataset.clock") == "utc"
