"""The part *Rounds* in a browser: by keyboard, at any width, while it changes; and how a person asks for such a request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dags_app.models import DAG, WorkUnit, WorkUnitState
from requests_app.models import Request
from tests.support import scene
from tests.support.browser import WIDTH, Window
from tests.support.scene_rounds import measured, three_rounds
from tests.support.side_by_side import PATIENCE
from tests.support.stack import small_request

SECOND = 1000.0 * PATIENCE
#: Of a telephone, of half a screen, of a laptop.
WIDTHS = (420, 820, WIDTH)
#: Cells of the part's tables whose heading is told to nobody.
UNTOLD = """
Array.from(document.querySelectorAll("#part-rounds table")).filter((table) =>
  table.querySelectorAll("thead th:not([scope=col])").length || table.querySelectorAll("tbody tr").length !==
  table.querySelectorAll("tbody th[scope=row]").length).length
"""


def test_it_fits_any_width_and_its_tables_are_told_cell_by_cell(desk: Window) -> None:
    desk.go(three_rounds().get_absolute_url())
    for part in ("round-decisions", "round-steps"):
        desk.page.locator(f"#{part} > summary").click()
    for width in WIDTHS:
        desk.page.set_viewport_size({"width": width, "height": 900})
        assert desk.overflow <= 0, f"the page is wider than a window of {width}"
    assert desk.page.evaluate(UNTOLD) == 0
    expect(desk.page.get_by_role("region", name="Rounds")).to_be_visible()


def test_on_a_telephone_wide_tables_are_moved_by_keys_beside_their_first_column(desk: Window, tmp_path: Path) -> None:
    scene.build(tmp_path)
    desk.page.set_viewport_size({"width": 390, "height": 900})
    for path, name in ((three_rounds().get_absolute_url(), "Rounds"), ("/failures/", "Failed attempts by code and site")):
        desk.go(path)
        region = desk.page.get_by_role("region", name=name)
        first, last = region.locator("tbody th").first, region.locator("tbody tr").first.locator("td").last
        begins = first.bounding_box()
        region.focus()
        for _ in range(40):
            desk.page.keyboard.press("ArrowRight")
        expect(last).to_be_in_viewport(ratio=1.0)
        ends = first.bounding_box()
        assert begins and ends and abs(begins["x"] - ends["x"]) <= 1, f"{name}: which row it is stays in sight"
        assert desk.overflow <= 0


def test_what_a_key_has_opened_stays_open_and_in_focus_when_a_unit_ends(desk: Window) -> None:
    request = three_rounds()
    desk.go(request.get_absolute_url())
    lines = desk.page.locator("#part-rounds table").first.locator("tbody tr")
    expect(lines.last).to_contain_text("not yet")
    steps = desk.page.locator("#round-steps > summary")
    steps.focus()
    desk.page.keyboard.press("Enter")
    expect(desk.page.locator("#round-steps table")).to_be_visible()
    dag = DAG.objects.get(workflow__request=request, round__index=2)
    measured(dag.round, "Reco", seconds=9000, cores=3.6, rss_mb=4321, events=8000, threads=4)
    first = WorkUnit.objects.filter(dag=dag).order_by("index")[:1]
    WorkUnit.objects.filter(pk__in=first).update(state=WorkUnitState.DONE, manifest_sha256="a" * 64, fence=dag.fence)
    expect(lines.last).to_contain_text("1 of 40", timeout=30 * SECOND)  # by itself
    expect(lines.last).to_contain_text("MB Reco")
    expect(desk.page.locator("#round-steps tbody tr").first).to_contain_text("1 × 4")
    expect(steps).to_be_focused()


@pytest.mark.simulators
def test_a_person_asks_for_rounds_on_the_page_of_the_import(ready: None, desk: Window) -> None:
    desk.go("/admin/requests_app/request/import/")
    box = desk.page.get_by_label("Adaptive")
    expect(box).not_to_be_checked()
    box.check()
    desk.page.get_by_label("Document", exact=False).last.fill(json.dumps(small_request()))
    desk.page.locator("#content form [type=submit]").click()
    expect(desk.page.locator("#part-head")).to_be_visible()
    assert Request.objects.get().adaptive
