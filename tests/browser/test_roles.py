"""Each role's day in a browser, of people who are not of Django's staff: the buttons that they have do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect

from requests_app.models import Request, RequestStatus
from sites_app.models import Site, SiteStatus
from tests.support.browser import Window, window
from tests.support.rows import request_row
from wms2.actions import Role
from wms2.admin.actions import action_url
from wms2.admin.shown import admin_url
from wms2.identities.people import role_give

#: Role -> what it is limited to.
DAYS: dict[str, tuple[Role, dict[str, Any]] | None] = {
    "vera": None,
    "rita": (Role.REQUESTER, {}),
    "sam": (Role.SITE_ADMIN, {"sites": ["T2_DE_DESY"]}),
    "olga": (Role.OPERATOR, {}),
    "ada": (Role.ADMIN, {}),
    "newton": None,
}


@dataclass
class World:
    """People, their requests and sites, and a browser in which each has a window of their own."""

    chromium: Browser
    url: str
    own: Request
    others: Request
    site: Site
    other_site: Site

    @contextmanager
    def desk(self, name: str, *refused: str) -> Iterator[Window]:
        """A window of one person. The browser complains of the addresses that answer 403, and of nothing else."""
        with window(self.chromium, self.url) as opened:
            opened.sign_in_as(User.objects.get(username=name))
            yield opened
            answers = [each for each in opened.complaints if not each.startswith("console: Failed to load resource")]
            assert answers == [f"403: {self.url}{path}" for path in refused]
            assert opened.overflow <= 0, "the page is wider than the window"


@pytest.fixture
def world(chromium: Browser, live_server: Any, transactional_db: Any) -> World:
    sites = [Site.objects.get_or_create(name=name)[0] for name in ("T2_DE_DESY", "T2_CH_CERN")]
    for name, given in DAYS.items():
        user = User.objects.create_user(name)
        if given is not None:
            role_give(role=given[0], holder=user, **given[1], actor="test", reason="test")
    requests = (request_row(RequestStatus.QUEUED, requestor="rita"), request_row(RequestStatus.QUEUED, group="HIGGS"))
    return World(chromium, live_server.url, *requests, *sites)


def confirmed(desk: Window, label: str) -> None:
    """A button, its page of confirmation with a reason, and the page that this leads back to."""
    desk.page.get_by_role("link", name=f"{label} …", exact=True).click()
    desk.page.get_by_label("Reason").fill("because")
    desk.page.get_by_role("button", name=label, exact=True).click()


def refused(desk: Window, path: str, sentence: str) -> None:
    """The address of an operation, by hand."""
    desk.go(path)
    expect(desk.page.get_by_role("heading", name="Not allowed")).to_be_visible()
    expect(desk.page.locator("main")).to_contain_text(sentence)


@pytest.mark.dear("the only day of each role in a browser")
def test_each_role_has_the_buttons_that_it_may_press(world: World) -> None:
    for day in (a_viewers_day, a_requesters_day, a_site_admins_day, an_operators_day, an_admins_day):
        day(world)


def a_viewers_day(world: World) -> None:
    with world.desk("vera") as desk:
        desk.go("/requests/")
        expect(desk.page.get_by_role("link", name="Admin", exact=True)).to_have_count(0)
        desk.page.get_by_role("link", name=world.own.request_name).first.click()
        expect(desk.page.get_by_role("heading", level=1)).to_have_text(world.own.request_name)
        expect(desk.page.locator(".operations")).to_have_count(0)
        desk.go("/admin/")
        expect(desk.page.get_by_role("alert")).to_contain_text("vera may not open that page.")


def a_requesters_day(world: World) -> None:
    hold = action_url(Request, "hold", [world.others.pk])
    with world.desk("rita", hold) as desk:
        desk.go(world.own.get_absolute_url())
        standing = desk.page.locator(".status-line")
        confirmed(desk, "Hold")
        expect(standing).to_contain_text("Held")
        confirmed(desk, "Release")
        expect(standing).to_contain_text("Submitted")
        desk.go(world.others.get_absolute_url())
        expect(standing).to_contain_text("Queued")
        expect(desk.page.locator(".operations a", has_text="Hold")).to_have_count(0)
        refused(desk, hold, "this needs the role operator; you have requester, for requests of your own.")


def a_site_admins_day(world: World) -> None:
    drain = action_url(Site, "drain", [world.other_site.pk])
    with world.desk("sam", drain) as desk:
        desk.go("/")
        desk.page.get_by_role("link", name="Admin", exact=True).click()
        desk.page.get_by_role("link", name="Sites", exact=True).first.click()
        desk.page.get_by_role("link", name="T2_DE_DESY", exact=True).click()
        desk.page.get_by_role("link", name="Drain …", exact=True).click()
        expect(desk.page.locator(".operation-form")).to_contain_text(
            "It can be undone with Enable; that needs the role operator."
        )
        desk.page.go_back()
        confirmed(desk, "Drain")
        expect(desk.page.get_by_role("status").last).to_contain_text("Drain: T2_DE_DESY.")
        expect(desk.page.locator("#main")).to_contain_text("Draining by sam: because")
        expect(desk.page.get_by_role("link", name="Enable …")).to_have_count(0)
        desk.go(admin_url(world.other_site))
        expect(desk.page.locator("#content h2").first).to_have_text("T2_CH_CERN")
        expect(desk.page.locator("a.operation")).to_have_count(0)
        refused(desk, drain, "T2_CH_CERN: this needs the role operator; you have site admin, for T2_DE_DESY.")
    world.site.refresh_from_db()
    world.other_site.refresh_from_db()
    assert (world.site.status, world.other_site.status) == (SiteStatus.DRAINING, SiteStatus.ENABLED)


def an_operators_day(world: World) -> None:
    held = request_row(RequestStatus.HELD)
    with world.desk("olga") as desk:
        desk.go(admin_url(held))
        confirmed(desk, "Release")
        expect(desk.page.locator(".messagelist")).to_contain_text(f"Release: {held.request_name}.")
        expect(desk.page.get_by_role("link", name="Hold …", exact=True)).to_be_visible()
        desk.go("/admin/sites_app/site/")
        desk.page.get_by_role("link", name="Enable …").click()  # what sam has drained
        expect(desk.page.locator(".concerned")).to_contain_text("T2_DE_DESY")


def an_admins_day(world: World) -> None:
    """Who is given a role by an admin has its button with the next page, in a session that has begun before."""
    with world.desk("newton") as given, world.desk("ada") as desk:
        given.go(world.others.get_absolute_url())
        expect(given.page.locator(".operations")).to_have_count(0)
        desk.go("/admin/")
        desk.page.get_by_role("link", name="Role assignments", exact=True).first.click()
        desk.page.get_by_role("link", name="Add role assignment").click()
        desk.page.get_by_label("Role").select_option("requester")
        desk.page.get_by_label("User").select_option("newton")
        desk.page.get_by_label("CMS groups").fill("HIGGS")
        desk.page.get_by_label("Reason").fill("contact of HIGGS")
        desk.page.get_by_role("button", name="Save", exact=True).click()
        expect(desk.page.locator(".messagelist")).to_contain_text("was added successfully")
        expect(desk.page.locator("#result_list")).to_contain_text("HIGGS")
        given.go("/account/")
        expect(given.page.locator("#roles")).to_contain_text("HIGGS")
        given.go(world.others.get_absolute_url())
        confirmed(given, "Hold")
        expect(given.page.locator(".status-line")).to_contain_text("Held")
