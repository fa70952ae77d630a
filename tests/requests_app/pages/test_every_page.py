"""What holds on every page that keeps itself up to date: it says when nothing drives the requests, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from dags_app.models import DAG
from outputs_app.models import OutputDataset, ProcessingBlock
from requests_app.models import LEADER_LEASE, Lease, RequestGroup
from requests_app.pages.urls import urlpatterns
from sites_app.models import Schedd
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
    run = BulkRun.objects.create(resource="request", action="hold", total=1, actor="olga", reason="x")
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
