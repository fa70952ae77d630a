"""An operator takes a further schedd into service, in the admin: its canary fails, the fault is mended, it is enabled."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from sites_app.models import Onboarding, Pool, Schedd, ScheddState
from tests.support.browser import Window
from tests.support.second_pool import SecondPool
from tests.support.stack import Worker, celery_beat, celery_worker
from wms2.conf import conf
from wms2.models import AuditEntry

pytestmark = [pytest.mark.pool, pytest.mark.simulators, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _canaries_go() -> Iterator[None]:
    yield
    shutil.rmtree(conf().submit_root / "canaries", ignore_errors=True)


@contextmanager
def processed(directory: Path, **environment: str) -> Iterator[Worker]:
    """Checks are carried out as in production."""
    with celery_worker("one", **environment) as running, celery_beat(directory):
        yield running


def click(desk: Window, action: str, *, says: str, **fields: str) -> None:
    """A button of a row's page, and the page that asks."""
    desk.page.get_by_role("link", name=f"{action} …", exact=True).click()
    confirm(desk, action, says=says, **fields)


def confirm(desk: Window, action: str, *, says: str, **fields: str) -> None:
    expect(desk.page.locator("#content")).to_contain_text(says)
    for label, value in {**fields, "Reason": "a further pool"}.items():
        field = desk.page.get_by_label(f"{label.replace('_', ' ')}:")
        if not field.is_visible():
            desk.page.locator("details", has=field).locator("summary").click()
        field.fill(value)
    desk.page.get_by_role("button", name=action).click()
    expect(desk.page.locator(".messagelist")).to_be_visible()


def listed(desk: Window, what: str, name: str) -> None:
    """From the admin's first page to a row's, by links."""
    desk.go("/admin/")
    desk.page.locator("#content-main").get_by_role("link", name=what, exact=True).first.click()
    desk.page.locator("#result_list").get_by_role("link", name=name, exact=True).first.click()


def checked(desk: Window, running: Worker) -> str:
    """Ask for the checks of the schedd whose page is shown; what they told, read on the page of the newest."""
    page = desk.page.url
    click(desk, "Check", says="a small canary DAG")
    running.wait(lambda: not Onboarding.objects.filter(ended_at=None).exists(), seconds=120)
    desk.page.goto(page)
    desk.page.get_by_role("link", name="Checks", exact=True).click()
    desk.page.locator("#result_list tbody tr").first.get_by_role("link", name=re.compile("passed|failed", re.I)).click()
    reported = desk.page.locator("#content").inner_text()
    desk.page.goto(page)
    return reported


@pytest.mark.deep("tests/dags_app/services/test_onboarding.py::test_the_canary_runs_once_and_then_the_schedd_may_be_enabled")
def test_an_operator_adds_a_pool_and_its_schedd_gets_in_once_its_canary_has_run(
    ready: None, desk: Window, second_pool: SecondPool, tmp_path: Path
) -> None:
    first = Pool.objects.get()
    listed(desk, "Pools", first.name)
    click(
        desk, "Add one like it", says="each is checked before it is enabled",
        Name="second", Collector=second_pool.collector, Token_dir=second_pool.token_dir,
    )  # fmt: skip
    listed(desk, "Pools", "second")
    click(desk, "Ask now", says="Ask its collector now")
    desk.page.get_by_role("link", name="Schedds", exact=True).last.click()
    desk.page.locator("#result_list").get_by_role("link", name=second_pool.schedd_name, exact=True).click()
    page = desk.page
    expect(page.locator("#content")).to_contain_text("Discovered")
    expect(page.get_by_role("link", name="Enable …")).to_have_count(0)

    with second_pool.matching_nothing(), processed(tmp_path, WMS2_CANARY_SECONDS="10") as running:
        reported = checked(desk, running)
    assert "it answers itself" in reported
    assert re.search(r"removed: .*the canary has had its time", reported)
    expect(page.locator("#content")).to_contain_text("the canary has had its time")
    expect(page.get_by_role("link", name="Enable …")).to_have_count(0)
    here = page.url
    desk.go("/admin/sites_app/schedd/")
    page.locator("#result_list tr", has_text=second_pool.schedd_name).get_by_role("checkbox").check()
    page.get_by_label("Action:").select_option(label="Enable …")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator(".refusal")).to_contain_text("the canary has had its time")
    expect(page.get_by_role("button", name="Enable")).to_have_count(0)

    page.goto(here)
    with processed(tmp_path) as running:
        assert "it ran at a site and ended well" in checked(desk, running)
    click(desk, "Enable", says="New DAGs may go to it")
    expect(page.locator("#content")).to_contain_text("Enabled")
    schedd = Schedd.objects.get(pool="second")
    assert (schedd.name, schedd.state, schedd.onboarding) == (second_pool.schedd_name, ScheddState.ENABLED, "")
    actions = AuditEntry.objects.filter(actor="olga", outcome="done").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["pool_add", "pool_ask", "schedd_check", "schedd_check", "schedd_change_state"]
