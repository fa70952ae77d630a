"""A shifter's night and an operator's day from their first look to their last, in a browser: what the person sees at each step,
and what stands in the rows afterwards. What one question costs in clicks is in ``test_clicks.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, expect

from dags_app.models import FailureSample
from requests_app.models import Alert, HoldCode, Request, RequestStatus, RequestTransition, RequestWatch
from sites_app.models import SiteBan
from tests.support import scene_week
from tests.support.browser import Window, window
from tests.support.rows import request_row, workflow_row
from tests.support.scene import Scene
from tests.support.scene_failures import packed_logs
from tests.support.scene_samples import BAD
from tests.support.side_by_side import PATIENCE
from wms2.models import AuditEntry, BulkRun
from wms2.work.bulk import bulk_go_on

QUICK = "tests/browser/test_clicks.py::test_what_a_person_wants_takes_few_clicks"
SECOND = 1000.0 * PATIENCE
#: Of a campaign that only needs its rescues counted anew.
HELD = tuple(f"pdmvserv_task_HIG-Run3Summer23GS-0020{n}__v1_T_260904_010000_3{n}" for n in range(4))


@pytest.fixture
def built(transactional_db: Any, tmp_path: Path) -> Scene:
    """A week, and the afternoon at its end."""
    return scene_week.build(tmp_path)


@pytest.fixture
def desk(chromium: Browser, live_server: Any, built: Scene, operator: User) -> Iterator[Window]:
    """The window of an operator; whatever the browser complains of fails the test."""
    with window(chromium, live_server.url) as opened:
        opened.sign_in_as(operator)
        opened.go("/")
        expect.set_options(timeout=30 * SECOND)
        yield opened
        expect.set_options(timeout=5_000)
        assert opened.complaints == []


def go(page: Page, name: str) -> None:
    """By the header."""
    page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True).click()


def find(page: Page, text: str) -> None:
    """By the search, which a key opens."""
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def begin(page: Page, operation: str) -> None:
    """An operation from the head of a row's page: beside the name, else among the folded ones."""
    link = page.locator("#part-head").get_by_role("link", name=f"{operation} …", exact=True)
    if not link.is_visible():
        page.locator("#more-operations summary").click()
    link.click()


def confirm(page: Page, operation: str, reason: str, **fields: str) -> Locator:
    """Why, on the page of confirmation; what one is told afterwards."""
    page.get_by_label("Reason:").fill(reason)
    for label, value in fields.items():
        page.get_by_label(f"{label}:", exact=True).fill(value)
    page.get_by_role("button", name=re.compile(f"^{operation}( [0-9]+)?$")).click()
    return page.get_by_role("status")


def alert_line(page: Page, code: str) -> Locator:
    """The line of an alert."""
    return page.locator("#part-alerts tbody tr").filter(has_text=code)


@pytest.mark.deep(QUICK)
def test_a_shifter_is_woken_at_three_and_hands_over_at_seven(desk: Window, built: Scene) -> None:
    page, held = desk.page, built.held
    sample = FailureSample.objects.filter(dag__workflow__request=held, group__code=8021).select_related("dag").latest("id")
    packed_logs(sample.dag, sample.unit, sample.node, sample.attempt, sample.job_id, "Begin\nFatal Root Error: no such file\n")
    User.objects.create_user("dan")

    # whether to get up, and for what
    expect(page.locator("h1.first")).to_contain_text(re.compile(r"^\d+ things need you, the first since"))
    expect(page.locator("h1.first")).to_contain_text(
        "schedd schedd2@wms2.example is silent. 1 of them stops more than one request"
    )
    needs = page.locator("#part-needs")
    expect(needs).to_contain_text("33 of 120 work units were not done")
    expect(page).to_have_title(re.compile(r"^\(\d+\) Overview"), timeout=30 * SECOND)

    # from the cause to the request, and to the whole log of a failed job
    needs.get_by_role("link", name=held.request_name).first.click()
    expect(page.locator("#part-head .status-line .badge").first).to_have_text("Held")
    expect(page.locator("#part-errors")).to_contain_text("FileReadError")
    log = f"{sample.unit}/{sample.node}, attempt {sample.attempt}"
    page.locator("#part-errors").get_by_role("link", name=log, exact=True).first.click()
    expect(page.locator("pre")).to_contain_text("Fatal Root Error: no such file")
    expect(page.get_by_role("link", name="Download the archive")).to_be_visible()

    # the alert of it is taken, with what was found; the schedd's is known, and silent until its people are up
    go(page, "Alerts")
    taken = alert_line(page, "effect_refused")
    expect(taken).to_contain_text("free")
    taken.get_by_role("link", name="Acknowledge …").click()
    confirm(page, "Acknowledge", "DBS lacks a file of this block; asked its operators")
    expect(alert_line(page, "effect_refused")).to_contain_text("olga has it")
    until = (timezone.now() + timedelta(hours=6)).replace(second=0, microsecond=0)
    alert_line(page, "schedd_silent").get_by_role("link", name="Silence …").click()
    confirm(page, "Silence", "its host is being moved, INC 4711", Until=f"{until:%Y-%m-%d %H:%M}")
    expect(alert_line(page, "schedd_silent")).to_contain_text(f"silent until {until:%Y-%m-%d %H:%M}")
    expect(alert_line(page, "schedd_silent")).to_contain_text("INC 4711")

    # at seven: a note on the request, and the alert goes to the day's shifter
    go(page, "Overview")
    needs.get_by_role("link", name=held.request_name).first.click()
    begin(page, "Note")
    confirm(page, "Note", "for the day shift", Notes="one bad file at CERN; leave it out, then release")
    expect(page.locator("#part-head")).to_contain_text("one bad file at CERN; leave it out, then release")
    go(page, "Alerts")
    alert_line(page, "effect_refused").get_by_role("link", name="Acknowledge …").click()
    confirm(page, "Acknowledge", "handed over at 7", Owner="dan")
    expect(alert_line(page, "effect_refused")).to_contain_text("dan has it")

    # what this shift has done, as the next one reads it
    go(page, "Overview")
    page.get_by_role("link", name="What changed since my shift").click()
    expect(page.locator("h1")).to_contain_text("What changed")
    done = page.locator("#part-rows")
    for said in ("INC 4711", "handed over at 7", "for the day shift", "asked its operators"):
        expect(done).to_contain_text(said)

    alerts = {alert.code: alert for alert in Alert.objects.filter(ended_at=None)}
    assert (alerts["effect_refused"].owner, alerts["effect_refused"].acknowledged_by) == ("dan", "olga")
    assert (alerts["schedd_silent"].silenced_until, alerts["schedd_silent"].silenced_by) == (until, "olga")
    assert Request.objects.get(pk=held.pk).notes == "one bad file at CERN; leave it out, then release"
    entries = AuditEntry.objects.filter(actor="olga", at__gte=timezone.now() - timedelta(hours=1)).order_by("id")
    assert [entry.action for entry in entries] == ["alert_acknowledge", "alert_silence", "request_note", "alert_acknowledge"]


@pytest.mark.deep(QUICK)
def test_an_operator_works_through_a_day(desk: Window, built: Scene, operator: User) -> None:
    page, held, queued = desk.page, built.held, built.queued
    User.objects.filter(pk=operator.pk).update(email="olga@cern.example")
    rescues = [
        request_row(
            RequestStatus.HELD, request_name=name, campaign=scene_week.SUMMER, hold_code=HoldCode.RESCUES, hold_reason="3 of 3"
        )
        for name in HELD
    ]
    for row in (queued, *rescues):
        workflow_row(row)
    lost = request_row(RequestStatus.HELD, request_name="lost_1", hold_code=HoldCode.PARENT, hold_reason="it was aborted")

    # a requester asks about a prep id: the file is repaired, the request goes on
    find(page, held.prep_id)
    expect(page.locator("h1")).to_have_text(held.request_name)
    begin(page, "Release")
    expect(confirm(page, "Release", "the file is repaired").filter(has_text="It is Queued now.")).to_be_visible()

    # another is put aside, which was a mistake
    find(page, queued.request_name)
    begin(page, "Hold")
    expect(confirm(page, "Hold", "its gridpack is wrong").filter(has_text="It is Held now.")).to_be_visible()
    page.get_by_role("link", name="Take it back: Release …").click()
    expect(confirm(page, "Release", "that was another one").filter(has_text="It is Queued now.")).to_be_visible()

    # a site is banned and comes back
    go(page, "Sites")
    expect(page.locator("#part-lines tr").filter(has_text=BAD)).to_contain_text("banned")
    page.get_by_role("link", name="T1_DE_KIT").click()
    begin(page, "Ban")
    confirm(page, "Ban", "its storage is full, GGUS 1")
    bans = page.locator("#part-bans tbody tr")
    expect(bans.first).to_contain_text("in force")
    expect(bans.first).to_contain_text("its storage is full, GGUS 1")
    begin(page, "Lift bans")
    confirm(page, "Lift bans", "there is room again")
    expect(bans.first).to_contain_text("ended by olga")

    # all that used up their rescues are released together; later the run is looked up
    go(page, "Requests")
    page.get_by_label("Held for").select_option("Rescue attempts used up")
    page.get_by_role("button", name="Find").last.click()
    expect(page.locator("#part-lines tbody tr")).to_have_count(len(HELD))
    page.get_by_label("Operation").select_option("Release")
    page.get_by_role("button", name="All found …").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Release: {len(HELD)} requests")
    page.get_by_label("Reason").fill("the sites are back")
    page.get_by_role("button", name=f"Release {len(HELD)}").click()
    expect(page.locator("#part-run")).to_contain_text(f"0 of {len(HELD)} settled")
    go(page, "Campaigns")

    # how a campaign does, and what of a dataset is missing
    page.get_by_role("link", name=scene_week.PHASE).click()
    expect(page.locator("h1")).to_have_text(scene_week.PHASE)
    expect(page.locator("#part-head .numbers")).to_contain_text("of 96,000 events done")
    expect(page.locator("#part-course .plot")).to_be_visible()
    find(page, built.active.request_name)
    page.get_by_role("link", name="events missing").first.click()
    expect(page.locator("h1")).to_have_text("Missing events")
    expect(page.locator("#missing tbody")).to_contain_text("196,800")
    expect(page.locator("#missing tbody")).to_contain_text("Lumi JSON")
    page.go_back()

    # it is to be followed
    begin(page, "Watch")
    confirm(page, "Watch", "PPD asks for it")
    begin(page, "Stop watching")
    page.go_back()

    # one that nothing can save is failed: the page says what that means before it is done
    find(page, lost.request_name)
    begin(page, "Fail")
    expect(page.locator("form.operation-form")).to_contain_text("It cannot be undone.")
    assert Request.objects.get(pk=lost.pk).status == RequestStatus.HELD
    confirm(page, "Fail", "its parent was aborted")
    expect(page.locator("#part-head .status-line .badge").first).to_have_text("Failed")

    # the run of the morning
    bulk_go_on(seconds=60)
    go(page, "Requests")
    page.get_by_role("link", name="Bulk runs").click()
    page.get_by_role("link", name=f"Release: {len(HELD)} (request)").click()
    expect(page.locator("#part-run")).to_contain_text(f"{len(HELD)} of {len(HELD)} settled")
    expect(page.locator("#part-items .badge").filter(has_text="Done")).to_have_count(len(HELD))

    statuses = dict(Request.objects.values_list("request_name", "status"))
    assert {statuses[name] for name in (held.request_name, queued.request_name, *HELD)} == {RequestStatus.QUEUED}
    assert statuses[lost.request_name] == RequestStatus.FAILED
    moves = RequestTransition.objects.filter(request__in=[held, queued, lost, *rescues], actor="olga").order_by("id")
    assert [(move.request_id, move.to_status, move.reason) for move in moves][:4] == [
        (held.pk, "queued", "the file is repaired"),
        (queued.pk, "held", "its gridpack is wrong"),
        (queued.pk, "queued", "that was another one"),
        (lost.pk, "failed", "its parent was aborted"),
    ]
    ban = SiteBan.objects.get(site_id="T1_DE_KIT")
    assert (ban.created_by, ban.removed_by, ban.reason) == ("olga", "olga", "its storage is full, GGUS 1")
    run = BulkRun.objects.get()
    assert (run.operation, run.reason, run.total) == ("release", "the sites are back", len(HELD))
    assert set(run.items.values_list("name", "result")) == {(name, "done") for name in HELD}
    assert RequestWatch.objects.get().request == built.active
