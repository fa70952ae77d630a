"""How many clicks a question or an operation takes a person, from the first page on; Enter in the search counts as one."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from dags_app.models import FailureSample
from sites_app.models import SiteBan
from tests.support import scene
from tests.support.browser import Window
from tests.support.scene_failures import packed_logs


class Person:
    """What they press, counted anew from each ``begin``."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base, self.clicks = page, base, 0

    def begin(self, path: str = "/") -> Page:
        """At an address."""
        self.page.goto(self.base + path)
        self.clicks = 0
        return self.page

    def press(self, name: str, role: Any = "link", within: str = "body") -> None:
        """The first link or button of this name."""
        self.page.locator(within).get_by_role(role, name=name).first.click()
        self.clicks += 1

    def find(self, text: str) -> None:
        """By the search in the header, which a key opens."""
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        self.clicks += 1


@pytest.mark.dear("questions and operations of a day, each with its number of clicks, in one browser")
def test_what_a_person_wants_takes_few_clicks(desk: Window, live_server: Any, tmp_path: Any) -> None:
    built = scene.build(tmp_path)
    held = built.held
    sample = FailureSample.objects.filter(dag__workflow__request=held).select_related("dag").latest("id")
    packed_logs(sample.dag, sample.unit, sample.node, sample.attempt, sample.job_id, "all of the log\nFatal Exception\n")
    name = held.request_name
    person = Person(desk.page, live_server.url)

    page = person.begin()
    needs = page.locator("#part-needs")
    expect(needs).to_contain_text(name)
    expect(needs).to_contain_text("33 of 120 work units were not done")
    expect(page.locator("body")).to_contain_text("events per hour")
    assert person.clicks == 0, "stuck and why; throughput of the last day"

    person.press("What changed since my shift")
    expect(page.locator("h1")).to_contain_text("What changed")
    assert person.clicks == 1

    person.begin()
    person.press("Campaigns", within="header")
    expect(page.locator("main")).to_contain_text(held.campaign)
    assert person.clicks == 1, "how far is a campaign"

    person.begin()
    person.find(held.prep_id)
    expect(page.locator("h1")).to_contain_text(name)
    assert person.clicks == 1, "a request by its prep id"

    person.begin()
    person.press(name, within="#part-needs")
    person.press(f"{sample.unit}/{sample.node}, attempt {sample.attempt}", within="#part-errors")
    expect(page.locator("pre")).to_contain_text("Fatal Exception")
    assert person.clicks == 2, "the whole log of a failed job"

    person.begin()
    person.press(name, within="#part-needs")
    person.press("events missing")
    expect(page.locator("h1")).to_contain_text("issing")
    assert person.clicks == 2, "the missing lumis of a dataset"

    person.begin("/sites/T2_CH_CERN/")
    person.press("Ban")
    page.get_by_label("Reason:").fill("its storage is full")
    person.press("Ban", role="button")
    expect(page.locator("h1")).to_contain_text("CERN")
    assert person.clicks == 2
    assert SiteBan.objects.filter(site_id="T2_CH_CERN", removed_at=None).exists()

    person.begin()
    person.press("Release 1 …", within="#part-needs")
    page.get_by_label("Reason").fill("the sites are back")
    person.press("Release 1", role="button")
    expect(page.locator("#part-run")).to_be_visible()
    assert person.clicks <= 4, "all requests of a cause are released"
