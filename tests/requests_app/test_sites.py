"""Sites that are banned, drained or closed: what a submission avoids, what failures earn, and when nothing is left."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.utils import timezone

from dags_app.models import WorkUnitState
from dags_app.payload.contract.layout import SITE_INCLUDE, SITE_MACRO
from requests_app.lifecycle.active import sites_judge
from requests_app.models import Event, Request, RequestStatus
from requests_app.services import preview, request_abort, request_complete, request_set_sites, request_stop
from sites_app.bans import LEFT, SiteFailures, bans_active
from sites_app.models import Pool, PoolSite, Site, SiteBan, SiteStatus
from sites_app.services import (
    site_ban_by_operator,
    site_bans_expire,
    site_change_status,
    site_unban_by_operator,
    sites_avoided,
    sites_drained,
)
from tests.support.rows import dag_row, request_row, unit_row, workflow_row
from tests.support.scripted import documents
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.actions import perform, resource_type_of, will_happen
from wms2.errors import InvalidTransition, ServiceUnavailable
from wms2.models import AuditEntry
from wms2.web.formatting import counted

pytestmark = pytest.mark.django_db(transaction=True)
S = RequestStatus


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


@pytest.mark.parametrize(("spreads", "slots"), [(False, {"T2_CH_CERN": 9}), (True, {}), (None, {})])
def test_a_submission_spreads_landings_only_where_the_pool_is_known_not_to(
    world: World, spreads: bool | None, slots: dict[str, int]
) -> None:
    (pool,) = Pool.objects.all()
    for name, total in (("T2_CH_CERN", 9), ("T1_US_FNAL", 0)):
        PoolSite.objects.update_or_create(pool=pool, site_id=name, defaults={"total_slots": total, "seen_at": timezone.now()})
    Pool.objects.update(spreads=spreads)
    request = world.request(documents.generation(100))
    world.cycle()
    directory = Path(request.workflow.dags.get().submit_dir)
    assert json.loads((directory / "spread.json").read_text()) == slots


def test_a_request_none_of_whose_sites_is_open_waits_in_the_queue_and_says_for_what(world: World) -> None:
    close_all()
    request = world.request(documents.generation(100))
    for _ in range(4):
        world.cycle()
        world.clock.advance(1800)
    reported = fresh(request)
    assert (reported.status, world.schedd.jobs, request.workflow.dags.count()) == (S.QUEUED, [], 0)
    assert reported.waiting_for.startswith("a site: ") and "disabled by olga: power cut" in reported.waiting_for
    assert list(request.transitions.values_list("to_status", flat=True)) == [S.SUBMITTED, S.QUEUED], "no vain attempt since"
    for site in Site.objects.all():
        site_change_status(site=site, status=SiteStatus.ENABLED, actor="olga", reason="power is back")
    world.cycle()
    assert fresh(request).status == S.ACTIVE


def test_a_site_taken_off_the_lists_is_left_by_what_is_still_to_land_of_a_running_dag(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(documents.generation(100))
    world.cycle()
    (job,) = world.schedd.live
    names = sorted(Site.objects.values_list("name", flat=True))
    asked: list[set[str]] = []
    avoid_sites = world.schedd.avoid_sites

    def silent_at_first(directory_id: str, fence: int, sites: set[str]) -> int:
        asked.append(sites)
        if len(asked) == 1:
            raise ServiceUnavailable("htcondor", "avoid_sites", "silent", "timeout")
        return avoid_sites(directory_id, fence, sites)

    monkeypatch.setattr(world.schedd, "avoid_sites", silent_at_first)
    request_set_sites(request=fresh(request), site_whitelist=names[1:], actor="olga", reason="its disk is full")
    # adopted: recorded after that, while its files were written before
    request.workflow.dags.update(submitted_at=timezone.now() + timedelta(hours=1))
    for _ in range(6):
        world.cycle()
    assert job.avoids == {names[0]} and job.live, "its landing jobs that wait do not start there"
    assert (job.directory / "avoid.inc").read_text() == f"DAG_AVOID = {names[0]}\n", "nor do those that come"
    dag = request.workflow.dags.get()
    assert [each.detail for each in dag.history.filter(event_type="sites_passed")] == [
        {"sites": [names[0]], "units_without_site": 0}
    ] * 2
    assert asked == [{names[0]}] * 4, "until the schedd answers, and two looks find none: DAGMan may just be submitting one"
    assert fresh(request).alert_code == ""


def test_a_site_list_that_leaves_units_of_a_running_dag_without_a_site_is_an_alert(world: World) -> None:
    names = sorted(Site.objects.values_list("name", flat=True))
    request = world.request(documents.generation(100) | {"SiteWhitelist": names[:1]})
    world.cycle()
    (job,) = world.schedd.live
    units = list(request.workflow.work_units.values_list("name", flat=True))
    need = f"if none of these is on the list: {counted(len(units), 'work unit')}: {names[0]}."
    assert need in preview.sites([fresh(request)])[request.pk][-1]
    (job.directory / units[0] / SITE_INCLUDE).write_text(f"{SITE_MACRO} = {names[0]}\n")  # goes on where it is
    request_set_sites(request=fresh(request), site_whitelist=names[1:], actor="olga", reason="its disk is full")
    for _ in range(4):
        world.cycle()
    assert fresh(request).alert_code == ("sites_unavailable" if len(units) > 1 else "")
    (job.directory / units[0] / "site.inc").unlink()
    passed = request.workflow.dags.get().history.filter(event_type="sites_passed")
    assert passed.first().detail == {"sites": names[:1], "units_without_site": len(units) - 1}
    passed.delete()
    for _ in range(4):
        world.cycle()
    assert fresh(request).alert_code == "sites_unavailable"
    reported = Event.objects.get(request=request, kind="alert").data["message"]
    assert "without a site: no longer on the request's site lists" in reported and names[0] in reported


def test_a_request_that_plans_nothing_more_needs_no_site(world: World) -> None:
    request = world.request(documents.generation(100))
    world.cycle()
    close_all()
    request_stop(request=fresh(request), actor="olga", reason="the site goes away")
    for job in world.schedd.live:
        world.schedd.end(job, End.REMOVED)
    for _ in range(3):
        world.cycle()
    assert fresh(request).waiting_for.startswith("a site: ")
    request_complete(request=fresh(request), actor="olga", reason="enough")
    for _ in range(3):
        world.cycle()
    assert fresh(request).status not in (S.QUEUED, S.PLANNING)


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


def test_failures_at_most_sites_at_once_ban_none_and_are_reported() -> None:
    request, names = _with_sites()
    assert sites_judge(request=request, failures=dict.fromkeys(names[:3], SiteFailures(9, 9))) == []
    refused = Event.objects.filter(request=request, kind="site.ban_refused")
    assert refused.count() == 3
    assert "3 of 4 sites fail at once (T2_A, T2_B, T2_C)" in refused.first().data["why"]
    assert AuditEntry.objects.filter(action="site_ban", outcome="refused").count() == 3
    other, _ = _with_sites()
    assert sites_judge(request=other, failures={"T2_D": SiteFailures(9, 9)}) == [], "within the window it is one of four"
    AuditEntry.objects.update(at=timezone.now() - timedelta(seconds=121))
    assert sites_judge(request=other, failures={"T2_D": SiteFailures(9, 9)}) == ["T2_D"]


def test_of_two_sites_none_is_banned_by_itself() -> None:
    request, names = _with_sites()
    request.workflow.spec |= {"site_whitelist": names[:2]}
    request.workflow.save(update_fields=["spec"])
    assert sites_judge(request=request, failures={"T2_A": SiteFailures(9, 9)}) == []
    assert "an operator decides" in Event.objects.get(request=request, kind="site.ban_refused").data["why"]


def test_a_site_that_three_requests_ban_is_banned_for_all() -> None:
    requests = [_with_sites()[0] for _ in range(3)]
    for number, request in enumerate(requests, start=1):
        sites_judge(request=request, failures={"T2_A": SiteFailures(4, 4)})
        assert bans_active("T2_A").filter(workflow__isnull=True).exists() == (number == 3)
    stranger, _ = _with_sites()
    assert "T2_A" in sites_avoided(stranger.workflow.pk)


def test_a_site_where_others_do_well_meanwhile_is_not_banned_for_all() -> None:
    requests = [_with_sites()[0] for _ in range(3)]
    unit_row(dag_row(workflow_row()), state=WorkUnitState.DONE, manifest_sha256="x", fence=1, site="T2_A", done_at=timezone.now())
    for request in requests:
        assert sites_judge(request=request, failures={"T2_A": SiteFailures(4, 4)}) == ["T2_A"]
    assert not bans_active("T2_A").filter(workflow__isnull=True).exists()
    refused = AuditEntry.objects.get(action="site_ban_promote", outcome="refused")
    assert "1 work units of others were done there" in str(vars(refused))
    stranger, _ = _with_sites()
    assert "T2_A" not in sites_avoided(stranger.workflow.pk)


def _taken_off_the_lists(request: Request) -> SiteBan:
    """What a change of a request's site lists leaves for T2_A."""
    site, until = Site.objects.get(pk="T2_A"), timezone.now() + timedelta(days=3650)
    about = {"workflow": request.workflow, "expires_at": until, "insist": True}
    return site_ban_by_operator(site=site, actor="olga", reason=f"{LEFT}: its data are elsewhere", **about)


def test_site_lists_of_requests_speak_for_no_ban_of_all_and_against_none() -> None:
    """What stands for a list that people have changed says nothing of the site, and may be years old."""
    for _ in range(3):
        _taken_off_the_lists(_with_sites()[0])
    SiteBan.objects.update(created_at=timezone.now() - timedelta(days=90))
    judged = [_with_sites()[0] for _ in range(3)]
    unit_row(
        dag_row(workflow_row()), state=WorkUnitState.DONE, manifest_sha256="x", fence=1, site="T2_A",
        done_at=timezone.now() - timedelta(days=9),
    )  # fmt: skip
    for number, request in enumerate(judged, start=1):
        sites_judge(request=request, failures={"T2_A": SiteFailures(4, 4)})
        assert bans_active("T2_A").filter(workflow__isnull=True).exists() == (number == 3)


def test_lifting_the_bans_of_a_site_opens_it_to_no_request_whose_lists_leave_it_out() -> None:
    request, _ = _with_sites()
    left = _taken_off_the_lists(request)
    site = Site.objects.get(pk="T2_A")
    site_ban_by_operator(site=site, actor="olga", reason="full disk")
    assert site_unban_by_operator(site=site, actor="sam", reason="there is room again") == 1
    assert list(sites_avoided(request.workflow.pk)) == ["T2_A"], "a rescue has the site in its files"
    resource_type = resource_type_of(Site)
    unban = next(each for each in resource_type.actions if each.name == "unban")
    assert (unban.refused(site), will_happen(unban, [site])[site.pk]) == (
        "No ban is in force; what stands for a request's site lists stays.",
        [],
    )
    lift = next(each for each in resource_type_of(SiteBan).actions if each.name == "lift")
    with pytest.raises(InvalidTransition, match="site lists"):
        perform(lift, left, "sam", {"reason": "there is room again"})


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


def test_a_ban_that_has_come_to_its_end_is_reported_once() -> None:
    """Error-handling 6.3: creation, expiration, removal and promotion are all logged."""
    request, _ = _with_sites()
    site = Site.objects.get(pk="T2_A")
    ban = site_ban_by_operator(site=site, actor="olga", reason="full disk", workflow=request.workflow)
    assert site_bans_expire(transaction.atomic) == 0
    past = timezone.now() - timedelta(seconds=1)
    SiteBan.objects.filter(pk=ban.pk).update(created_at=past - timedelta(days=7), expires_at=past)
    assert [site_bans_expire(transaction.atomic), site_bans_expire(transaction.atomic)] == [1, 0]
    reported = AuditEntry.objects.get(action="site_ban_expire")
    assert (reported.actor, reported.target, reported.reason) == ("wms2", "T2_A", "full disk")
    ban.refresh_from_db()
    assert (ban.removed_at, ban.removed_by) == (past, "its end")


def test_every_event_of_a_ban_is_in_the_audit() -> None:
    request, _ = _with_sites()
    site = Site.objects.get(pk="T2_A")
    site_ban_by_operator(site=site, actor="olga", reason="x", workflow=request.workflow)
    site_unban_by_operator(site=site, actor="olga", reason="y")
    for _ in range(3):
        sites_judge(request=_with_sites()[0], failures={"T2_A": SiteFailures(4, 4)})
    actions = AuditEntry.objects.filter(target="T2_A").order_by("id").values_list("actor", "action")
    assert list(actions) == [
        ("olga", "site_ban"), ("olga", "site_unban"), *[("wms2", "site_ban")] * 3, ("wms2", "site_ban_promote"),
    ]  # fmt: skip


def test_the_same_request_twice_is_not_two_independent_ones() -> None:
    """Error-handling 6.2: several *workflows*."""
    request, _ = _with_sites()
    for _ in range(4):
        sites_judge(request=request, failures={"T2_A": SiteFailures(4, 4)})
    assert bans_active("T2_A").count() == 1
    stranger, _ = _with_sites()
    assert "T2_A" not in sites_avoided(stranger.workflow.pk)


def test_a_ban_lasts_seven_days_and_then_the_site_counts_as_any_other() -> None:
    request, _ = _with_sites()
    sites_judge(request=request, failures={"T2_A": SiteFailures(4, 4)})
    ban = bans_active("T2_A").get()
    assert timedelta(days=7) - (ban.expires_at - ban.created_at) < timedelta(seconds=5)
    assert ban.failure_data == {"attempts": 4, "against_site": 4}


def test_a_ban_leaves_a_running_dag_alone_and_its_rescue_keeps_away(world: World) -> None:
    """Error-handling 6.3, not retroactive, and 6.5."""
    request = world.request(documents.generation(300))
    world.cycle()
    job = world.job_of(request)
    include = job.directory / "avoid.inc"
    before = include.read_text()
    banned, everywhere = sorted(Site.objects.values_list("name", flat=True))[:2]
    site_ban_by_operator(
        site=Site.objects.get(pk=banned), actor="olga", reason="x", workflow=fresh(request).workflow, insist=True
    )
    site_ban_by_operator(site=Site.objects.get(pk=everywhere), actor="olga", reason="x", insist=True)
    world.cycle()
    assert (include.read_text(), job.live) == (before, True)
    world.schedd.unit_failed(job, job.open_nodes[0])
    world.schedd.end(job, End.FINISHED)
    for _ in range(4):
        world.cycle()
    assert world.job_of(request).directory == job.directory
    assert include.read_text() == f"DAG_AVOID = {banned},{everywhere}\n"


def test_bans_are_kept_in_the_table_of_the_specification_with_its_two_partial_indexes() -> None:
    with connection.cursor() as cursor:
        columns = {column.name for column in connection.introspection.get_table_description(cursor, "site_bans")}
        cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'site_bans'")
        indexes = dict(cursor.fetchall())
    named = "id site_name workflow_id reason failure_data created_at expires_at removed_at removed_by"
    assert set(named.split()) <= columns
    assert indexes["idx_site_bans_active"].endswith("(site_name, expires_at) WHERE (removed_at IS NULL)")
    assert indexes["idx_site_bans_workflow"].endswith("WHERE ((removed_at IS NULL) AND (workflow_id IS NOT NULL))")


def test_a_drain_that_has_come_to_its_end_enables_the_site() -> None:
    _with_sites()
    now = timezone.now()
    Site.objects.filter(pk="T2_A").update(status=SiteStatus.DRAINING, drain_until=now - timedelta(seconds=1))
    Site.objects.filter(pk="T2_B").update(status=SiteStatus.DRAINING, drain_until=now + timedelta(hours=1))
    assert set(sites_avoided(None)) == {"T2_B"}
    assert sites_drained(transaction.atomic) == ["T2_A"]
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
