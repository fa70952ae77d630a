"""From an error to the log of a failed job in a browser: one click, by keyboard too, at any width, and the download."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from playwright.sync_api import expect

from dags_app.models import DAG
from dags_app.services.failures import failures_sweep
from requests_app.models import RequestStatus
from requests_app.pages.logs import PAGE_CHARACTERS
from tests.support.browser import WIDTH, Window
from tests.support.rows import dag_row, request_row, workflow_row
from tests.support.scene_failures import line, packed_logs

HOSTILE = "<script>document.title = 'taken'</script>\n<img src=x onerror=alert(1)>\n"
LONG = HOSTILE + "x" * PAGE_CHARACTERS + "\nFatal Exception\n"


def _failed(tmp_path: Path) -> DAG:
    dag = dag_row(workflow_row(request_row(RequestStatus.ACTIVE)), submit_dir=str(tmp_path), fence=1)
    (tmp_path / "failures.jsonl").write_text(json.dumps(line()) + "\n")
    failures_sweep(dag)
    packed_logs(dag, "mg_000000", "proc_000000", 0, "7.0", LONG)
    return dag


def test_a_person_goes_from_an_error_to_the_log_and_takes_the_archive_along(desk: Window, tmp_path: Path) -> None:
    dag = _failed(tmp_path)
    page = desk.page
    desk.go(dag.workflow.request.get_absolute_url())
    page.locator("#part-errors").get_by_role("link", name="mg_000000/proc_000000, attempt 0").first.click()
    expect(page.get_by_role("heading", level=2)).to_have_text("step1_DIGIRaw/cmsRun.stderr")
    expect(page.locator("pre")).to_contain_text("Fatal Exception")
    earlier = page.get_by_role("link", name="Earlier")
    earlier.focus()
    page.keyboard.press("Enter")
    expect(page.locator("pre")).to_contain_text("<script>document.title = 'taken'</script>")
    assert "taken" not in page.title()
    for width in (420, WIDTH):
        page.set_viewport_size({"width": width, "height": 900})
        assert desk.overflow <= 0, f"the page is wider than a window of {width}"
    page.get_by_role("navigation", name="Files of the archive").get_by_role("link", name="PSet.py").click()
    expect(page.locator("pre")).to_contain_text("cms.Process('DIGI')")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download the archive").click()
    with tarfile.open(taken.value.path()) as archive:
        assert "step1_DIGIRaw/cmsRun.stderr" in archive.getnames()
    assert desk.complaints == []
    page.get_by_role("link", name="Plain text").click()
    expect(page.locator("body")).to_contain_text("cms.Process('DIGI')")
    desk.complaints.clear()  # beside a plain text the browser asks for an icon that is not there
