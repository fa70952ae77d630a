"""Operations on sites and bans in the admin: what will happen, why, and the audit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from sites_app.models import Site, SiteBan, SiteStatus
from sites_app.services import site_ban_by_operator, site_change_status
from tests.support.html import links, text
from tests.support.rows import request_row, workflow_row
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db
SITES, BANS = "/admin/sites_app/site", "/admin/sites_app/siteban"
NAMES = ("T1_US_FNAL", "T2_CH_CERN", "T2_US_Purdue")


@pytest.fixture(autouse=True)
def _sites(db: Any) -> None:
    for name in NAMES:
        Site.objects.create(name=name)


def ask(client: Client, action: str, key: object, of: str = SITES) -> str:
    response = client.get(f"{of}/verb/{action}/", {"id": key})
    assert response.status_code == 200
    return text(response.content.decode())


def do(client: Client, action: str, key: object, seen: str, of: str = SITES, **data: Any) -> Any:
    return client.post(f"{of}/verb/{action}/", {"id": key, "seen": seen, "reason": "because", **data})


def cern() -> Site:
    return Site.objects.get(pk="T2_CH_CERN")


def audited(action: str) -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.filter(action=action).order_by("id").values_list("actor", "outcome", "reason"))


@pytest.mark.parametrize(
    ("action", "to"),
    [("drain", SiteStatus.DRAINING), ("disable", SiteStatus.DISABLED), ("maintenance", SiteStatus.MAINTENANCE)],
)
def test_a_site_is_closed_and_opened_again_with_a_reason(operator: Client, action: str, to: SiteStatus) -> None:
    said = ask(operator, action, "T2_CH_CERN")
    assert "DAGs that run already may still begin work units there, and what runs there goes on." in said
    assert "0 DAGs live now; they are not touched." in said
    assert do(operator, action, "T2_CH_CERN", "enabled 0").status_code == 302
    assert (cern().status, cern().status_actor, cern().status_reason) == (to, "olga", "because")
    assert do(operator, "enable", "T2_CH_CERN", f"{to} 0").status_code == 302
    assert cern().status == SiteStatus.ENABLED
    assert "It is enabled already." in ask(operator, "enable", "T2_CH_CERN")


def test_a_sites_page_reached_from_the_list_has_its_buttons(operator: Client) -> None:
    page = next(link for link in links(operator.get(f"{SITES}/").content.decode()) if "CERN" in link)
    buttons = [link for link in links(operator.get(page).content.decode()) if "/verb/" in link]
    assert f"{SITES}/verb/drain/?id=T2_CH_CERN" in buttons


def test_list_and_page_of_sites_say_who_closed_one_why_until_when_and_how_it_is_opened(operator: Client) -> None:
    workflow = workflow_row(request_row())
    for site, of in (("T1_US_FNAL", None), ("T2_CH_CERN", workflow)):
        site_ban_by_operator(site=Site.objects.get(pk=site), actor="igor", reason="disk full", workflow=of, insist=True)
    site_change_status(site=Site.objects.get(pk="T2_US_Purdue"), status=SiteStatus.DRAINING, actor="olga", reason="downtime")
    ban = SiteBan.objects.get(workflow=None)
    until = f"{ban.expires_at:%Y-%m-%d %H:%M} UTC"
    listed = operator.get(f"{SITES}/").content.decode()
    for html in (listed, operator.get(f"{SITES}/T1_US_FNAL/change/").content.decode()):
        assert f"banned for all by igor until {until}: disk full" in text(html)
        assert f"{BANS}/verb/lift/?id={ban.pk}" in links(html)
    assert f"banned for {workflow.request_id} by igor" in text(listed)
    assert "draining by olga: downtime" in text(operator.get(f"{SITES}/T2_US_Purdue/change/").content.decode())
    assert do(operator, "lift", ban.pk, "None", BANS).status_code == 302
    assert "banned for all" not in text(operator.get(f"{SITES}/").content.decode())


def test_a_site_is_drained_until_a_moment(operator: Client) -> None:
    assert do(operator, "drain", "T2_CH_CERN", "enabled 0", until="2020-01-01 00:00").status_code == 409
    assert cern().status == SiteStatus.ENABLED
    assert do(operator, "drain", "T2_CH_CERN", "enabled 0", until="2126-01-01 08:00").status_code == 302
    until = cern().drain_until
    assert until is not None
    assert f"{until:%Y-%m-%d %H:%M}" == "2126-01-01 08:00"


def test_a_site_is_banned_for_one_request_or_for_all_and_the_bans_are_lifted(operator: Client) -> None:
    request = request_row()
    workflow_row(request)
    assert do(operator, "ban", "T2_CH_CERN", "enabled 0", request_name="nobody_has_it").status_code == 409
    assert do(operator, "ban", "T2_CH_CERN", "enabled 0", request_name=request.request_name, insist="on").status_code == 302
    assert do(operator, "ban", "T2_CH_CERN", "enabled 1").status_code == 302
    one, all_ = SiteBan.objects.order_by("created_at")
    assert (one.workflow, all_.workflow) == (request.workflow, None)
    assert all_.expires_at > timezone.now() + timedelta(days=6.9)
    said = ask(operator, "lift", one.pk, of=BANS)
    assert "new submissions may send work there again." in said
    assert do(operator, "lift", one.pk, "None", of=BANS).status_code == 302
    assert "because (until" in ask(operator, "unban", "T2_CH_CERN")
    assert do(operator, "unban", "T2_CH_CERN", "enabled 1").status_code == 302
    assert not SiteBan.objects.filter(removed_at__isnull=True).exists()
    assert "No ban is in force;" in ask(operator, "unban", "T2_CH_CERN")
    assert [entry[1] for entry in audited("site_unban")] == ["done", "done"]


def test_more_than_half_are_banned_only_by_insisting(operator: Client) -> None:
    assert do(operator, "ban", "T2_CH_CERN", "enabled 0").status_code == 302
    response = do(operator, "ban", "T1_US_FNAL", "enabled 0")
    assert response.status_code == 409
    assert "2 of 3 sites would be banned" in text(response.content.decode())
    assert do(operator, "ban", "T1_US_FNAL", "enabled 0", insist="on").status_code == 302
    assert [entry[1] for entry in audited("site_ban")] == ["done", "refused", "done"]


def test_notes_about_a_site_start_as_they_are(operator: Client) -> None:
    assert do(operator, "note", "T2_CH_CERN", "enabled 0", notes='["no names"]').status_code == 400
    assert do(operator, "note", "T2_CH_CERN", "enabled 0", notes='{"contact": "olga"}').status_code == 302
    assert cern().config_data == {"contact": "olga"}
    assert "contact" in operator.get(f"{SITES}/verb/note/?id=T2_CH_CERN").content.decode()
    assert audited("site_note") == [("olga", "done", "because")]


def test_a_sites_page_offers_what_applies_to_operators_alone(operator: Client, staff: Client) -> None:
    page = f"{SITES}/T2_CH_CERN/change/"
    offered = [link.split("/verb/")[1].split("/")[0] for link in links(operator.get(page).content.decode()) if "/verb/" in link]
    assert offered == ["drain", "disable", "maintenance", "ban", "note"]
    assert not [link for link in links(staff.get(page).content.decode()) if "/verb/" in link]
