"""Pages of sites, schedds, campaigns, blocks and groups offer what the row's state calls for, the rest under More by theme."""

from __future__ import annotations

import re
import uuid

import pytest
from django.test import Client
from django.utils import timezone

from outputs_app.models import BlockStatus
from requests_app.models import Request, RequestGroup, RequestStatus
from sites_app.models import ScheddState, Site, SiteStatus
from sites_app.services import site_ban_by_operator
from tests.support.html import links
from tests.support.rows import new_block, request_row, schedd_row

pytestmark = pytest.mark.django_db
SITE, SCHEDD = "/sites/T2_DE_DESY/", "/operations/schedds/schedd1@wms2.example/"


def offered(client: Client, page: str) -> tuple[list[str], dict[str, list[str]]]:
    """Names of the operations in sight, and of those folded by heading."""
    html = client.get(page).content.decode()
    sight, _, folded = html.partition('<details id="more-operations"')
    themes = re.findall(r"<div><h2>([^<]*)</h2><ul>(.*?)</ul></div>", folded, re.DOTALL)
    return _names(sight), {theme: _names(part) for theme, part in themes}


def _names(html: str) -> list[str]:
    return [found[1] for link in links(html) if (found := re.search(r"/verb/([^/]+)/", link))]


def test_of_a_site(operator: Client, reader: Client) -> None:
    site = Site.objects.create(name="T2_DE_DESY")
    sight, folded = offered(operator, SITE)
    assert sight == ["drain", "ban"]
    assert folded == {"New work": ["disable", "maintenance"], "Further": ["note"]}
    assert offered(reader, SITE) == ([], {})
    site_ban_by_operator(site=site, actor="olga", reason="x", insist=True)
    assert offered(operator, SITE)[0] == ["unban", "drain", "ban"]
    Site.objects.update(status=SiteStatus.DISABLED)
    sight, folded = offered(operator, SITE)
    assert sight == ["enable", "unban", "note"]
    assert folded == {"New work": ["drain", "maintenance"], "Bans": ["ban"]}


def test_of_a_schedd(operator: Client) -> None:
    row = schedd_row("schedd1@wms2.example")
    sight, folded = offered(operator, SCHEDD)
    assert sight == ["drain", "disable"]
    assert folded == {"New DAGs": ["check"], "Further": ["change-schedd"]}
    row.state, row.onboarded_at = ScheddState.DISABLED, None
    row.save()
    assert offered(operator, SCHEDD)[0] == ["check"], "what has not passed its checks cannot be enabled"
    row.state, row.onboarded_at, row.drain_since = ScheddState.DRAINING, timezone.now(), timezone.now()
    row.save()
    assert offered(operator, SCHEDD)[0] == ["enable", "drain", "disable"]


def test_only_what_cannot_be_undone_is_red(operator: Client) -> None:
    Site.objects.create(name="T2_DE_DESY")
    stray = {"looks": 2, "dag_id": str(uuid.uuid4()), "cluster_id": 7, "jobs": 1, "request_name": "gone"}
    schedd_row("schedd1@wms2.example", orphans=[stray])
    assert "dangerous" not in operator.get(SITE).content.decode()
    red = re.findall(r'class="(?:button )?dangerous" href="[^"]*/verb/([^/]+)/', operator.get(SCHEDD).content.decode())
    assert set(red) == {"remove-strays"}


def test_of_a_campaign_a_block_and_a_group(operator: Client) -> None:
    request_row(RequestStatus.ACTIVE, campaign="Run3")
    assert offered(operator, "/campaigns/Run3/") == (["describe"], {})
    RequestGroup.objects.create(name="pair", created_by="olga")
    assert offered(operator, "/groups/pair/") == (["dissolve"], {})
    block = new_block(3, 3, status=BlockStatus.ARCHIVED, no_tape="none is wanted")
    page = f"/outputs/blocks/{block.pk}/"
    assert offered(operator, page) == ([], {}), "while its request runs it is not validated"
    Request.objects.filter(pk=block.workflow.request.pk).update(status=RequestStatus.COMPLETED)
    assert offered(operator, page) == (["validate-block"], {})
