"""The page of one's own account in a browser: a token is made, shown once and revoked, at any width."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import User
from playwright.sync_api import expect
from rest_framework.authtoken.models import Token

from tests.support.browser import WIDTH, Window
from wms2.models import PersonalToken


def test_a_person_makes_a_token_sees_it_once_and_revokes_it(desk: Window, operator: User, tmp_path: Any) -> None:
    Token.objects.create(user=operator)
    page = desk.page
    desk.go("/")
    page.get_by_role("link", name="olga").click()
    expect(page.locator("#roles")).to_contain_text("operator")
    page.get_by_label("What it is for").fill("release robot")
    page.get_by_label("It may").select_option("roles")
    page.get_by_label("operator").check()
    page.get_by_role("button", name="Make").click()
    expect(page.locator("#token")).to_have_text(re.compile(r"wms2_\w{8}_\w{43}"))
    for width in (420, WIDTH):
        page.set_viewport_size({"width": width, "height": 900})
        assert desk.overflow <= 0, f"the page is wider than a window of {width}"
        page.screenshot(path=tmp_path / f"account-{width}.png", full_page=True)
    desk.go("/account/")
    expect(page.locator("#token")).to_have_count(0)
    page.get_by_role("button", name="Revoke release robot").click()
    expect(page.get_by_role("status")).to_contain_text(["is revoked"])
    expect(page.locator("#tokens")).to_contain_text("revoked by olga")
    assert PersonalToken.objects.get().revoked_by == "olga"
