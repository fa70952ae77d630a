"""Charts in a browser: drawn from their tables within the content policy, anew when a part or the clock changes, at any width."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import expect

from requests_app.models import Progress, ProgressSample, Request, Round
from tests.support.browser import WIDTH, Window
from tests.support.scene_rounds import three_rounds
from tests.support.side_by_side import PATIENCE

SECOND = 1000.0 * PATIENCE
#: Whether a chart's canvas has more than one colour.
PAINTED = """
(figure) => {
  const canvas = figure.querySelector(".plot").shadowRoot.querySelector("canvas");
  const data = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(data).size > 10;
}
"""
LEGEND = "[data-chart='course-done'] .u-legend"


def sampled(request: Request) -> None:
    """Some hours of samples."""
    now = timezone.now().replace(second=0, microsecond=0)
    moments = [now - timedelta(minutes=5 * step) for step in range(60, 0, -1)]
    counts = [
        {
            "units": 40 + 40 * (n > 30),
            "units_done": n,
            "units_failed": 0,
            "jobs_idle": 90 - n,
            "jobs_running": 3 * n % 70,
            "jobs_held": 0,
        }
        for n, _ in enumerate(moments)
    ]
    rows = zip(moments, counts, strict=True)
    ProgressSample.objects.bulk_create(ProgressSample(request=request, at=at, **each) for at, each in rows)
    for round_ in Round.objects.filter(workflow__request=request):
        Round.objects.filter(pk=round_.pk).update(created_at=moments[20 * round_.index])
    last = {"at": moments[-1], "first_at": moments[0], "peak_running": 69, "job_seconds": 1.0}
    Progress.objects.update_or_create(request=request, defaults=counts[-1] | last)


def test_it_is_drawn_within_the_policy_and_drawn_anew_where_its_part_changes(desk: Window) -> None:
    request = three_rounds()
    sampled(request)
    desk.go(request.get_absolute_url())
    page = desk.page
    figures = page.locator("[data-chart]")
    expect(figures).to_have_count(3)
    expect(page.locator(LEGEND)).to_contain_text("planned")
    for figure in figures.all():
        assert figure.evaluate(PAINTED)
    expect(page.locator(LEGEND)).to_contain_text("UTC")
    page.evaluate("document.documentElement.dataset.clock = 'local'")
    expect(page.locator(LEGEND)).to_contain_text("local time")
    numbers = page.locator("#numbers-course-done")
    expect(numbers.locator("table")).to_be_hidden()
    numbers.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(numbers.locator(".marks")).to_contain_text("round 2")
    ProgressSample.objects.filter(request=request).update(units_done=7)
    cell = numbers.locator("tbody tr").last.locator("td").first
    expect(cell).to_have_text("7", timeout=30 * SECOND)  # by itself
    assert figures.first.evaluate(PAINTED), "and drawn"
    for width in (390, WIDTH):
        page.set_viewport_size({"width": width, "height": 900})
        assert desk.overflow <= 0, f"the page is wider than a window of {width}"
