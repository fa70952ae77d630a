"""Hosts' clocks differ; leases, graces and expiries go by the database's alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from dags_app.models import DAG
from dags_app.services.submit import submission_unknown_seconds
from outputs_app.effects.executor import effects_claim
from outputs_app.models import Effect, EffectKind
from requests_app.installation import MAX_CLOCK_SKEW_SECONDS, clock_verify, installation_claim
from requests_app.lease import evaluating
from requests_app.lifecycle import leader
from requests_app.lifecycle.cycle import run_cycle
from requests_app.models import Lease, RequestStatus
from requests_app.reqmgr2 import following
from requests_app.reqmgr2.following import reqmgr2_poll
from sites_app.bans import bans_active, site_ban
from sites_app.models import Site
from tests.support.faults import fault
from tests.support.rows import request_row
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.runtime import clock

pytestmark = pytest.mark.django_db(transaction=True)
_real = timezone.now


@pytest.fixture(name="ahead")
def _ahead(monkeypatch: pytest.MonkeyPatch):
    """Set this host's clock ahead of the database's."""

    def by(seconds: float) -> None:
        def now() -> datetime:
            return _real() + timedelta(seconds=seconds)

        monkeypatch.setattr(timezone, "now", now)

    return by


@fault(
    "clock 180 s ahead",
    done="one host's clock is 180 s ahead of the database's and of the others'",
    spec="docs/design/control.md, Clock",
    afterwards="it takes no lease and no claim that others hold, repeats no submission, and ends no ban; it is told",
)
def test_a_host_whose_clock_is_ahead_takes_nothing_that_others_hold(ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_row(RequestStatus.QUEUED)
    Effect.objects.create(request=request, kind=EffectKind.RUCIO_FILES, key="k", epoch=request.epoch)
    site = Site.objects.create(name="T2_A")
    site_ban(site=site, workflow_id=None, reason="r", created_by="a", expires_at=_real() + timedelta(seconds=100), insist=True)
    dag = DAG(submit_intent_at=clock.now() - timedelta(seconds=5))
    monkeypatch.setenv("WMS2_NODE", "n1")
    with evaluating(request.pk, owner="a") as held, leader.leading() as leading:
        assert held is not None
        assert leading is not None
        assert effects_claim(owner="a", most=1)
        ahead(180)
        with evaluating(request.pk, owner="b") as second:
            assert second is None
        Lease.objects.update(process="somebody of another node")
        monkeypatch.setenv("WMS2_NODE", "n2")
        with leader.leading() as another:
            assert another is None
        conf.cache_clear()
        monkeypatch.setenv("WMS2_EFFECT_LEASE_SECONDS", "60")
        assert effects_claim(owner="b", most=1) == []
        assert submission_unknown_seconds(dag) > 100
        assert [ban.site_id for ban in bans_active()] == ["T2_A"]


def test_the_grace_of_a_submission_begins_when_its_call_can_live_no_longer() -> None:
    settings = conf()
    dag = DAG(submit_intent_at=clock.now() - timedelta(seconds=settings.submit_unknown_grace_seconds + 1))
    assert 0 < submission_unknown_seconds(dag) <= settings.submit_timeout_seconds


def test_a_process_with_a_wrong_clock_does_not_start_and_readyz_says_so(ahead, client: Client) -> None:
    installation_claim()
    clock_verify()
    ahead(MAX_CLOCK_SKEW_SECONDS + 5)
    with pytest.raises(ConfigurationError, match=r"clock is \+3\d\.\d s off the database's"):
        clock_verify()
    with pytest.raises(CommandError, match="not started: this host's clock"):
        call_command("lifecycle_tick")
    assert "off the database's" in client.get("/readyz").json()["reasons"]["clock"]


def test_a_clock_of_the_database_that_was_set_back_stops_neither_cycles_nor_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done last is of the future then; also where another server, whose clock is behind, has taken its place."""
    assert run_cycle()
    assert not run_cycle()
    ahead = clock.now() + timedelta(hours=1)
    Lease.objects.update(data={"cycle_started_epoch": ahead.timestamp(), "cycle_ended_at": ahead.isoformat(), "seconds": 1})
    assert run_cycle()
    assert not run_cycle()

    monkeypatch.setattr(following, "team_take", str)
    monkeypatch.setattr(following, "requests_follow", lambda: None)
    monkeypatch.setattr(following, "conf", lambda: conf().model_copy(update={"reqmgr2_follow": True}))
    assert reqmgr2_poll()
    assert not reqmgr2_poll()
    Lease.objects.filter(name=following.POLL).update(heartbeat_at=ahead)
    assert reqmgr2_poll()
    assert not reqmgr2_poll()
