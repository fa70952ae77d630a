"""Trouble that is not theirs: when it begins, what it holds, and how it ends by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from requests_app.admission.queue import admit, admit_if_changed
from requests_app.lifecycle.active import sites_judge
from requests_app.models import Event, Request, RequestStatus
from sites_app import guard
from sites_app.bans import AUTOMATIC, BAN, SiteFailures
from sites_app.guard import BadAtOnce, ban_objection, guard_check, guard_judge, systemic_trouble
from sites_app.models import Health, Pool, PoolSite, Schedd, ScheddState, Site, SystemicAlert
from tests.support.rows import request_row, schedd_row, workflow_row
from wms2.audit import audit
from wms2.models import AuditEntry
from wms2.runtime import clock

pytestmark = pytest.mark.django_db


def schedds(*health: Health) -> list[Schedd]:
    now = clock.now()
    return [schedd_row(f"s{n}", health=each, health_since=now, asked_at=now) for n, each in enumerate(health)]


def look(after_seconds: float = 0) -> SystemicAlert | None:
    """A look of the cycle, so many seconds from now."""
    with pytest.MonkeyPatch.context() as patch:
        moment = clock.now() + timedelta(seconds=after_seconds)
        patch.setattr(guard.clock, "now", lambda: moment)
        guard_check(transaction.atomic)
    return SystemicAlert.objects.filter(ended_at=None).first()


def test_most_schedds_that_turn_bad_at_once_hold_new_work_and_raise_one_alert() -> None:
    schedds(Health.UNREACHABLE, Health.DEGRADED, Health.HEALTHY)
    waiting = request_row(RequestStatus.QUEUED)
    assert look() is not None and look(30) is not None
    assert SystemicAlert.objects.count() == 1
    assert AuditEntry.objects.filter(action="systemic_alert").count() == 1
    assert admit() == 0
    waiting.refresh_from_db()
    assert waiting.waiting_for == (
        "the end of trouble that is not theirs: bad at once are 2 of 3 schedds: s0, s1; look for a common cause"
    )


def test_half_of_them_and_those_that_turned_bad_one_after_the_other_are_nobodys_trouble_but_theirs() -> None:
    first, second, third, _ = schedds(Health.UNREACHABLE, Health.UNREACHABLE, Health.HEALTHY, Health.HEALTHY)
    assert look() is None
    Schedd.objects.filter(pk=third.pk).update(health=Health.UNREACHABLE)
    Schedd.objects.filter(pk__in=[first.pk, second.pk]).update(health_since=clock.now() - timedelta(hours=1))
    assert look() is None


def test_it_ends_by_itself_when_it_has_been_over_for_the_window_and_a_relapse_begins_that_anew() -> None:
    rows = schedds(Health.UNREACHABLE, Health.UNREACHABLE, Health.HEALTHY)
    look()
    Schedd.objects.filter(pk=rows[0].pk).update(health=Health.HEALTHY)
    assert look(300) is not None
    Schedd.objects.filter(pk=rows[0].pk).update(health=Health.DEGRADED)
    assert look(360) is not None, "most are bad again, whenever they turned"
    Schedd.objects.filter(pk=rows[0].pk).update(health=Health.HEALTHY)
    assert look(400) is not None and look(500) is not None and systemic_trouble()
    assert look(521) is None and systemic_trouble() == ""
    assert AuditEntry.objects.filter(action="systemic_alert_end").count() == 1


def test_a_schedd_that_an_operator_disables_counts_no_more() -> None:
    rows = schedds(Health.UNREACHABLE, Health.UNREACHABLE, Health.HEALTHY)
    look()
    Schedd.objects.filter(pk__in=[rows[0].pk, rows[1].pk]).update(state=ScheddState.DISABLED)
    assert look(10) is not None and look(131) is None


def in_pool(pool: str, *health: Health) -> list[Schedd]:
    now = clock.now()
    rows = [(f"{pool}{n}", each) for n, each in enumerate(health)]
    return [schedd_row(name, pool=pool, health=each, health_since=now, asked_at=now) for name, each in rows]


BAD, WELL = Health.UNREACHABLE, Health.HEALTHY


def test_four_schedds_in_two_pools_with_three_dead_hold_their_pool_and_the_other_one_admits() -> None:
    dead, (well,) = in_pool("A", BAD, BAD, BAD), in_pool("B", WELL)
    first, only_there = request_row(RequestStatus.QUEUED, priority=2), request_row(RequestStatus.QUEUED, priority=1)
    Request.objects.filter(pk=only_there.pk).update(overrides={"pools": ["A"]})
    alert = look()
    assert alert is not None and (alert.pool, alert.holds) == ("A", True)
    assert systemic_trouble() == "" and admit() == 1
    first.refresh_from_db(), only_there.refresh_from_db()
    assert (first.status, first.reserved_schedd) == (RequestStatus.PLANNING, well)
    Schedd.objects.filter(pk=dead[0].pk).update(health=WELL)
    admit()
    only_there.refresh_from_db()
    assert "A0: waits for the end of trouble that is not theirs: bad at once are 3 of 3 schedds" in only_there.waiting_for
    Schedd.objects.filter(pk__in=[dead[1].pk, dead[2].pk]).update(health=WELL)
    look(10), look(131)
    assert admit_if_changed() == 1, "the end of the alert wakes admission"


@pytest.mark.parametrize(
    ("pools", "held"),
    [
        ({"A": (BAD, BAD, BAD, WELL), "B": (WELL,)}, ["A"]),
        ({"A": (BAD, BAD, BAD, WELL), "B": (BAD, WELL, WELL)}, ["A"]),
        ({"A": (BAD, BAD), "B": (BAD, WELL)}, ["A", "B"]),  # too few in each to tell; together most are bad
        ({"A": (BAD, BAD), "B": (BAD, WELL), "C": (WELL,)}, ["A", "B"]),
        ({"A": (BAD, BAD), "B": (WELL, WELL)}, []),
        ({"A": (BAD, BAD, BAD), "B": (BAD, BAD, BAD)}, ["A", "B"]),
    ],
)
def test_each_pool_is_judged_by_itself_and_those_with_few_together(pools: dict[str, tuple[Health, ...]], held: list[str]) -> None:
    for pool, health in pools.items():
        in_pool(pool, *health)
    look()
    assert sorted(SystemicAlert.objects.filter(holds=True).values_list("pool", flat=True)) == held
    assert bool(systemic_trouble()) == (held == list(pools))


def test_sites_that_fail_in_one_pool_hold_that_one_and_keep_no_ban_from_another() -> None:
    in_pool("A", WELL), in_pool("B", WELL)
    for pool, names in (("A", "UVW"), ("B", "XYZ")):
        for name in names:
            PoolSite.objects.create(pool_id=pool, site=Site.objects.create(name=name), jobs_running=3, seen_at=clock.now())
    for name in "UV":
        audit(actor=AUTOMATIC, action=BAN, target=name, target_type="site", reason="fails")
    look()
    assert SystemicAlert.objects.get().pool == "A" and admit() == 0
    assert "trouble that is not theirs" in ban_objection(["W"], "WXYZ")
    assert ban_objection(["X"], "WXYZ") == ""


def test_sites_of_one_list_that_fail_count_only_in_the_pools_where_work_of_ours_uses_them() -> None:
    """A new pool and one that is disabled know the same sites."""
    for name in "UVW":
        Site.objects.create(name=name)
    for pool, state, jobs in (("A", "enabled", 3), ("new", "enabled", 0), ("off", "disabled", 3)):
        schedd_row(f"of_{pool}", pool=pool, asked_at=clock.now())
        Pool.objects.filter(pk=pool).update(state=state)
        for name in "UVW":
            PoolSite.objects.create(pool_id=pool, site_id=name, jobs_running=jobs, seen_at=clock.now())
    for name in "UV":
        audit(actor=AUTOMATIC, action=BAN, target=name, target_type="site", reason="fails")
    look()
    assert list(SystemicAlert.objects.values_list("pool", "holds")) == [("A", True)]
    request_row(RequestStatus.QUEUED)
    assert admit() == 1
    PoolSite.objects.filter(pool="A", site__in="UV").update(jobs_running=0)
    look(10)
    assert list(SystemicAlert.objects.values_list("pool", "holds")) == [("A", True)], "only W is in use, and in A alone"
    PoolSite.objects.filter(pool="new", site="U").update(jobs_running=1)
    assert ban_objection(["U"], "UVWXYZ") == "", "in use in the pool without trouble alone"
    assert "trouble that is not theirs" in ban_objection(["W"], "UVWXYZ")


@pytest.mark.parametrize("others", [(), (Health.HEALTHY,), (Health.UNREACHABLE,)])
def test_with_one_or_two_schedds_an_operator_is_asked_and_nothing_is_held(others: tuple[Health, ...]) -> None:
    schedds(Health.UNREACHABLE, *others)
    alert = look()
    assert alert is not None and not alert.holds and "an operator decides" in alert.reason
    assert systemic_trouble() == ""


def test_most_sites_where_jobs_are_that_fail_at_once_are_trouble_too_and_are_not_banned() -> None:
    for name in "ABCDEF":
        Site.objects.create(name=name, jobs_running=3 if name in "ABCD" else 0)
    requests = [request_row() for _ in range(4)]
    for request, site in zip(requests, "ABCD", strict=True):
        workflow_row(request)
        request.workflow.spec |= {"site_whitelist": list("ABCDEF")}
        request.workflow.save(update_fields=["spec"])
        sites_judge(request=request, failures={site: SiteFailures(5, 5)})
        look()
    refused = Event.objects.filter(kind="site.ban_refused").order_by("id")
    assert [event.data["site"] for event in refused] == ["D"], "three of the four sites in use had turned bad by then"
    assert systemic_trouble() and "trouble that is not theirs" in refused[0].data["why"]


KIND = st.integers(0, 8).flatmap(
    lambda bad: st.integers(0, bad).flatmap(
        lambda lately: st.integers(bad, 12).map(
            lambda seen: BadAtOnce("schedd", seen, frozenset(map(str, range(bad))), frozenset(map(str, range(lately))))
        )
    )
)


@given(KIND, KIND, st.booleans())
def test_new_work_is_held_only_when_most_of_more_than_two_are_bad(found: BadAtOnce, sites: BadAtOnce, lasting: bool) -> None:
    holds, reason = guard_judge(found, sites, lasting=lasting)
    most = [each for each in (found, sites) if each.observed > 2 and len(each.bad) * 2 > each.observed]
    assert not holds or (most and reason)
    assert holds or not lasting or not most, "what goes on goes on while most are bad"
    assert reason or not (found.few and found.bad)
