"""An operation begun on a page ends there: what was done is said, with the way back where there is one."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from outputs_app.models import BlockStatus
from requests_app.alerts import alert
from requests_app.models import Alert, Campaign, Request, RequestStatus
from sites_app.models import Site
from tests.support.html import links, text
from tests.support.rows import new_block, request_row, schedd_row

pytestmark = pytest.mark.django_db
S = RequestStatus


def follow(client: Client, page: str, link: str, **given: Any) -> str:
    """The page on which one stands after an operation behind one of its links, with a reason."""
    form = client.get(link)
    assert form.status_code == 200, form.content[:500]
    hidden = dict(re.findall(r'<input type="hidden" name="(id|seen|back)" value="([^"]*)"', form.content.decode()))
    asked = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items() if name in ("id", "back")}
    answer = client.post(urlsplit(link).path, {**hidden, **asked, "reason": "for Moriond", **given}, follow=True)
    assert answer.redirect_chain == [(page, 302)], text(answer.content.decode())[:1000]
    return answer.content.decode()


def act(client: Client, page: str, action: str, **given: Any) -> str:
    """The same by the button's name."""
    [link] = {link for link in links(client.get(page).content.decode()) if f"/verb/{action}/" in link}
    return follow(client, page, link, **given)


def done(html: str) -> str:
    """What is said of it."""
    found = re.search(r'<p class="notice colour-good" role="status">(.*?)</p>', html, re.DOTALL)
    assert found is not None, text(html)[:500]
    return text(found[1])


def back(html: str) -> str:
    """The way back."""
    [link] = re.findall(r'class="way-back" href="([^"]*)"', html)
    return str(link.replace("&amp;", "&"))


def goes_back(client: Client, page: str, action: str, said: str, by: str, **given: Any) -> str:
    """Do it and take it back; what is said then."""
    html = act(client, page, action, **given)
    assert said in done(html) and by in done(html), done(html)
    return done(follow(client, page, back(html)))


def test_on_a_sites_page(operator: Client) -> None:
    Site.objects.create(name="T2_DE_DESY")
    page = "/sites/T2_DE_DESY/"
    assert "It is Enabled now" in goes_back(operator, page, "drain", "It is Draining now", "Take it back: Enable")
    assert "Lift bans: T2_DE_DESY" in goes_back(operator, page, "ban", "1 ban", "Take it back: Lift bans", insist="on")


def test_on_a_schedds_page(operator: Client) -> None:
    schedd_row("schedd1@wms2.example")
    page = "/operations/schedds/schedd1@wms2.example/?pool=pool"
    assert "It is Enabled now" in goes_back(operator, page, "drain", "It is Draining now", "Take it back: Enable")
    assert "It is Enabled now" in goes_back(operator, page, "disable", "It is Disabled now", "Take it back: Enable")


def test_on_a_campaigns_page_all_values_are_set_back_also_empty_ones(operator: Client) -> None:
    request_row(S.ACTIVE, campaign="Run3")
    html = act(operator, "/campaigns/Run3/", "describe", owner="HIG", note="urgent")
    assert "Describe: Run3" in done(html) and "Set back as it was" in done(html)
    boxes = re.findall(
        r'<(?:input|textarea)[^>]*name="(owner|note)"[^>]*?(?:value="([^"]*)"|>\s*([^<]*)<)',
        operator.get(back(html)).content.decode(),
    )
    given = {name: value or text for name, value, text in boxes}
    assert given == {"owner": "", "note": ""}
    follow(operator, "/campaigns/Run3/", back(html), **given)
    assert (Campaign.objects.get(pk="Run3").owner, Campaign.objects.get(pk="Run3").note) == ("", "")


def test_on_a_blocks_page_where_nothing_takes_it_back(operator: Client) -> None:
    block = new_block(3, 3, status=BlockStatus.ARCHIVED, no_tape="none is wanted")
    Request.objects.filter(pk=block.workflow.request.pk).update(status=S.COMPLETED)
    html = act(operator, f"/outputs/blocks/{block.pk}/", "validate-block")
    assert "Validate again" in done(html) and "way-back" not in html


def test_on_the_page_of_alerts(operator: Client) -> None:
    alert(request_row(S.ACTIVE), "slow_active", "for long")
    page, until = "/alerts/?code=slow_active", timezone.now() + timedelta(hours=5)
    assert "Give back" in goes_back(operator, page, "acknowledge", "Acknowledge", "Take it back: Give back")
    silenced = goes_back(operator, page, "silence", "Silence", "Take it back: End the silence", until=f"{until:%Y-%m-%d %H:%M}")
    assert "End the silence" in silenced
    assert Alert.objects.get().silenced_until is None
