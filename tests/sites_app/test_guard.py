"""Trouble that is not theirs: when it begins, what it holds, and how it ends by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from requests_app.admission.queue import admit
from requests_app.lifecycle.active import sites_judge
from requests_app.models import Event, RequestStatus
from sites_app import guard
from sites_app.bans import SiteFailures
from sites_app.guard import Turned, guard_judge, guard_look, systemic_trouble
from sites_app.models import Health, Schedd, ScheddState, Site, SystemicAlert
from tests.support.rows import request_row, schedd_row, workflow_row
from wms2 import clock
from wms2.models import AuditEntry

pytestmark = pytest.mark.django_db


def schedds(*health: Health) -> list[Schedd]:
    now = clock.now()
    return [schedd_row(f"s{n}", health=each, health_since=now, asked_at=now) for n, each in enumerate(health)]


def look(after_seconds: float = 0) -> SystemicAlert | None:
    """A look of the cycle, so many seconds from now."""
    with pytest.MonkeyPatch.context() as patch:
        moment = clock.now() + timedelta(seconds=after_seconds)
        patch.setattr(guard.clock, "now", lambda: moment)
        guard_look(transaction.atomic)
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
            lambda seen: Turned("schedd", seen, frozenset(map(str, range(bad))), frozenset(map(str, range(lately))))
        )
    )
)


@given(KIND, KIND, st.booleans())
def test_new_work_is_held_only_when_most_of_more_than_two_are_bad(found: Turned, sites: Turned, lasting: bool) -> None:
    holds, reason = guard_judge(found, sites, lasting=lasting)
    most = [each for each in (found, sites) if each.observed > 2 and len(each.bad) * 2 > each.observed]
    assert not holds or (most and reason)
    assert holds or not lasting or not most, "what goes on goes on while most are bad"
    assert reason or not (found.few and found.bad)
