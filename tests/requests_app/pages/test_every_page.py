"""What holds on every page that keeps itself up to date: it says when nothing drives the requests, at a bounded cost."""

from __future__ import annotations

import re
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
from tests.support.places import ROOT
from tests.support.scene import Scene
from wms2.models import BulkRun

pytestmark = pytest.mark.django_db
#: How a template leads to a file of a list: of the page's own, of a list or a part over REST.
FILES = r"part-files|list_files|rest_list|same_as|format=json|>JSON</a>|json_address"
STOPPED = 'data-undriven="the life cycle has stopped"'
RUNS = 'data-undriven=""'
#: What fetches nothing by itself: a form, an image, what a job left, an answer to POST alone.
STILL = {
    "search", "saved-view-new", "saved-view-end", "request-watched",
    "bulk-new", "cases", "lost-files-page", "request-chart", "missing-lumis-page",
    "report-page", "ads-page", "stored-logs-page", "logs-page",
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


#: Lists without files: of the reader alone, of what was just pasted or chosen, of one job's own files, which lead to them raw.
NO_FILES = {"account.html", "lost_files.html", "bulk_new.html", "job.html"}


def test_every_list_of_a_page_has_its_address_as_csv_or_json() -> None:
    """In its section, or where it is drawn for several, in the section of each."""
    bare = []
    for template in sorted((ROOT / "templates").rglob("*.html")):
        source = template.read_text()
        if template.name in NO_FILES or "admin" in template.parts:
            continue
        for found in re.finditer(r'<table class="[^"]*\blist\b|include "dags/tries.html"|{{ seen.matrix }}', source):
            begins, ends = source.rfind("<section", 0, found.start()), source.find("</section>", found.end())
            between = "part-files" if 'id="part-files"' in source else ""  # what two sections have together
            part = source[max(begins, 0) : ends if ends > 0 else None] + between
            if template.name not in ("tries.html", "matrix.html") and not re.search(FILES, part):
                bare.append(f"{template.name}: {source[found.start() : found.end() + 60]}")
    assert bare == []


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
