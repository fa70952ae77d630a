"""What holds on every page that keeps itself up to date: it says when nothing drives the requests, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone

from dags_app.models import DAG
from outputs_app.models import OutputDataset, ProcessingBlock
from requests_app.models import LEADER_LEASE, Lease, RequestGroup
from requests_app.pages.urls import urlpatterns
from sites_app.models import Schedd, Site
from sites_app.services import site_ban_by_operator
from tests.support.html import links
from tests.support.scene import Scene
from wms2.models import BulkRun

pytestmark = pytest.mark.django_db
STOPPED = 'data-undriven="the life cycle has stopped"'
RUNS = 'data-undriven=""'
#: What fetches nothing by itself: a form, an image, what a job left, an answer to POST alone.
STILL = {
    "search", "saved-view-new", "saved-view-end", "bulk-new", "cases", "lost-files-page", "request-course", "missing-lumis-page",
    "report-page", "ads-page", "kept-logs-page", "logs-page",
}  # fmt: skip


def addresses(built: Scene) -> dict[str, str]:
    """Of every other page, whatever pages there will be: one that takes arguments is given them here."""
    group = RequestGroup.objects.create(name="pair", created_by="olga")
    run = BulkRun.objects.create(resource="request", operation="hold", data={}, actor="olga", total=1, created_at=timezone.now())
    arguments: dict[str, Sequence[Any]] = {
        "request-page": [built.held.request_name],
        "campaign-page": [built.held.campaign],
        "site-page": ["T1_US_FNAL"],
        "schedd-page": [Schedd.objects.all()[0].name],
        "dag-page": [DAG.objects.all()[0].pk],
        "block-page": [ProcessingBlock.objects.all()[0].pk],
        "bulk-run-page": [run.pk],
        "group-page": [group.name],
    }
    names = {each.name for each in urlpatterns if isinstance(each, URLPattern)}
    found = {str(name): reverse(str(name), args=arguments.get(str(name), ())) for name in names - STILL}
    found["dataset-page"] += f"?name={OutputDataset.objects.all()[0].name}"
    return found


def test_every_page_says_that_the_life_cycle_has_stopped_and_none_while_it_runs(operator: Client, built: Scene) -> None:
    silent, loud, pages = [], [], addresses(built)
    for name, address in pages.items():
        page = operator.get(address)
        assert page.status_code == 200, name
        if RUNS not in page.content.decode():
            loud.append(name)
    Lease.objects.filter(name=LEADER_LEASE).delete()
    for name, address in pages.items():
        part = operator.get(address, headers={"X-Wms2-Part": "live"}).content.decode()
        if STOPPED not in part or 'id="part-title"' not in part:
            silent.append(name)
    assert (silent, loud) == ([], [])


def test_every_list_and_chart_is_had_as_csv_and_json_where_its_page_says_so(operator: Client, built: Scene) -> None:
    site_ban_by_operator(site=Site.objects.get(pk="T1_US_FNAL"), actor="olga", reason="its tape system is down")
    wrong, pages = [], [*addresses(built).values(), reverse("cases")]
    for page in pages:
        for link in links(operator.get(page).content.decode()):
            asked = parse_qs(urlsplit(link).query).get("format", [""])[0]
            if asked:
                answer = operator.get(urljoin(page, link))
                kind = answer.headers["Content-Type"]
                if answer.status_code != 200 or asked not in kind:
                    wrong.append((page, link, answer.status_code, kind))
    assert wrong == []
