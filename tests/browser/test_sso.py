"""A person signs in by single sign-on in a real browser, whose content policy lets the form go on to the issuer alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import window
from tests.support.side_by_side import PATIENCE
from tests.support.sso import CALLBACK, Provider
from wms2.conf import conf


def test_the_button_leads_to_the_issuer_and_back_to_the_page_that_was_wanted(
    chromium: Browser, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider(tmp_path / "sso", [f"{live_server.url}{CALLBACK}"], ["olga:cms-operators"])
    try:
        for name, value in provider.settings().items():
            monkeypatch.setenv(name, value)
        conf.cache_clear()
        with window(chromium, live_server.url) as desk:
            desk.page.set_default_timeout(30_000 * PATIENCE)
            desk.go("/requests/?status=held")
            desk.page.get_by_role("button", name="Sign in with CERN SSO").click()
            desk.page.wait_for_url(f"{provider.url}/**")
            desk.page.locator("input[name=login]").fill("olga")
            desk.page.locator("input[name=password]").fill(provider.password)
            desk.page.locator("button[type=submit], input[type=submit]").first.click()
            desk.page.wait_for_url(f"{live_server.url}/requests/?status=held")
            expect(desk.page.get_by_text("olga", exact=True)).to_be_visible()
            desk.page.get_by_role("button", name="Sign out").click()
            expect(desk.page.get_by_role("button", name="Sign in with CERN SSO")).to_be_visible()
            desk.page.get_by_role("button", name="Sign in with CERN SSO").click()  # the issuer knows the person still
            desk.page.wait_for_url(f"{live_server.url}/")
            assert [each for each in desk.complaints if provider.url not in each] == []
    finally:
        provider.stop()
