"""Sites that are banned, drained or closed: what a submission avoids, what failures earn, and when nothing is left."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from requests_app.models import AuditEntry, Event, Request, RequestStatus
from requests_app.services import request_abort
from requests_app.services.sites import site_ban_by_operator, site_change_status, site_unban_by_operator, sites_judge
from sites_app.bans import SiteFailures, bans_active
from sites_app.models import Site, SiteBan, SiteStatus
from sites_app.statuses import sites_avoided, sites_drained
from tests.support.rows import request_row, workflow_row
from tests.support.scripted import documents
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


@pytest.fixture(name="world")
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    world.furnish()
    return world


def fresh(request: Request) -> Request:
    return Request.objects.get(pk=request.pk)


def close_all(status: SiteStatus = SiteStatus.DISABLED) -> None:
    for site in Site.objects.all():
        site_change_status(site=site, status=status, actor="olga", reason="power cut")


def test_a_submission_avoids_what_is_banned_and_closed_then(world: World) -> None:
    names = sorted(Site.objects.values_list("name", flat=True))
    site_change_status(site=Site.objects.get(pk=names[0]), status=SiteStatus.DRAINING, actor="olga", reason="downtime")
    request = world.request(documents.generation(100))
    world.cycle()
    assert fresh(request).status == S.ACTIVE
    directory = Path(request.workflow.dags.get().submit_dir)
    assert (directory / "avoid.inc").read_text() == f"DAG_AVOID = {names[0]}\n"


def test_a_request_none_of_whose_sites_is_open_waits_in_the_queue_and_says_for_what(world: World) -> None:
    close_all()
    request = world.request(documents.generation(100))
    world.cycle()
    world.cycle()
    told = fresh(request)
    assert (told.status, world.schedd.jobs) == (S.QUEUED, [])
    assert "disabled: power cut" in told.last_error
    for site in Site.objects.all():
        site_change_status(site=site, status=SiteStatus.ENABLED, actor="olga", reason="power is back")
    world.clock.advance(7200)
    world.cycle()
    world.cycle()
    assert fresh(request).status == S.ACTIVE


def test_a_request_that_waits_for_a_site_can_be_aborted(world: World) -> None:
    close_all()
    request = world.request(documents.generation(100))
    world.cycle()
    request_abort(request=fresh(request), actor="olga", reason="no longer needed")
    world.cycle()
    assert fresh(request).status == S.ABORTED


@pytest.mark.parametrize(
    ("seen", "banned"),
    [
        (SiteFailures(10, 6), True),
        (SiteFailures(10, 5), False),  # not more than half
        (SiteFailures(2, 2), False),  # too few to tell
        (SiteFailures(3, 3), True),
    ],
)
def test_enough_failures_and_a_large_share_of_them_ban_a_site_for_the_request(seen: SiteFailures, banned: bool) -> None:
    request, _ = _with_sites()
    assert sites_judge(request=request, failures={"T2_A": seen}) == (["T2_A"] if banned else [])
    assert SiteBan.objects.filter(workflow=request.workflow).count() == banned


def test_failures_at_most_sites_ban_the_first_and_are_told_for_the_others() -> None:
    request, names = _with_sites()
    bad = SiteFailures(9, 9)
    assert sites_judge(request=request, failures=dict.fromkeys(names, bad)) == [names[0], names[1]]
    refused = Event.objects.filter(request=request, kind="site.ban_refused")
    assert refused.count() == len(names) - 2
    assert AuditEntry.objects.filter(action="site_ban", outcome="refused").count() == len(names) - 2


def test_a_site_that_three_requests_ban_is_banned_for_all() -> None:
    requests = [_with_sites()[0] for _ in range(3)]
    for number, request in enumerate(requests, start=1):
        sites_judge(request=request, failures={"T2_A": SiteFailures(4, 4)})
        assert bans_active("T2_A").filter(workflow__isnull=True).exists() == (number == 3)
    stranger, _ = _with_sites()
    assert "T2_A" in sites_avoided(stranger.workflow.pk)


def test_an_expired_or_lifted_ban_is_none() -> None:
    request, _ = _with_sites()
    site = Site.objects.get(pk="T2_A")
    site_ban_by_operator(site=site, actor="olga", reason="x", workflow=request.workflow)
    assert "T2_A" in sites_avoided(request.workflow.pk)
    assert site_unban_by_operator(site=site, actor="olga", reason="y") == 1
    assert not sites_avoided(request.workflow.pk)
    ban = site_ban_by_operator(site=site, actor="olga", reason="x", workflow=request.workflow)
    past = timezone.now() - timedelta(seconds=1)
    SiteBan.objects.filter(pk=ban.pk).update(created_at=past - timedelta(days=7), expires_at=past)
    assert not sites_avoided(request.workflow.pk)


def test_a_drain_that_has_come_to_its_end_enables_the_site() -> None:
    _with_sites()
    now = timezone.now()
    Site.objects.filter(pk="T2_A").update(status=SiteStatus.DRAINING, drain_until=now - timedelta(seconds=1))
    Site.objects.filter(pk="T2_B").update(status=SiteStatus.DRAINING, drain_until=now + timedelta(hours=1))
    assert set(sites_avoided(None)) == {"T2_B"}
    assert sites_drained() == ["T2_A"]
    assert Site.objects.get(pk="T2_B").status == SiteStatus.DRAINING


def _with_sites() -> tuple[Request, list[str]]:
    names = ["T2_A", "T2_B", "T2_C", "T2_D"]
    for name in names:
        Site.objects.get_or_create(name=name)
    request = request_row()
    workflow_row(request)
    spec = request.workflow.spec | {"site_whitelist": names}
    request.workflow.spec = spec
    request.workflow.save(update_fields=["spec"])
    return request, names
