"""One life cycle at a time: lock, lease, epoch, take-over, cool-down."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone

from requests_app.lifecycle import leader
from requests_app.models import Lease
from tests.support.calls import stopping
from wms2.adapters.caller import retry_call
from wms2.errors import LeaseLost
from wms2.models import AuditEntry
from wms2.runtime.parallel import side_by_side

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(name="node")
def _node(monkeypatch: pytest.MonkeyPatch):
    """Choose which node this process pretends to be on."""

    def become(name: str) -> None:
        monkeypatch.setenv("WMS2_NODE", name)

    return become


def expire() -> None:
    Lease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def test_two_processes_of_one_node_never_lead_together(node) -> None:
    node("n1")
    with leader.leading() as first:
        assert first is not None
        with leader.leading() as second:
            assert second is None
    with leader.leading() as again:
        assert again is not None
        assert again.epoch == first.epoch, "the same node keeps its epoch"


def test_another_node_waits_until_the_lease_has_expired_then_leads_with_a_higher_epoch(node) -> None:
    node("n1")
    with leader.leading() as first:
        assert first is not None
    node("n2")
    with leader.leading() as early:
        assert early is None
    expire()
    with leader.leading() as late:
        assert late is not None
        assert late.epoch == first.epoch + 1
    assert AuditEntry.objects.get(action="leader_takeover").evidence["former"] == "n1"


def test_a_deposed_leader_is_refused_its_next_write(node) -> None:
    node("n1")
    with leader.leading() as old:
        assert old is not None
    expire()
    node("n2")
    with leader.leading(), pytest.raises(LeaseLost, match="n2"):
        old.renew()


def test_flapping_leadership_cools_down(node) -> None:
    for turn in range(4):
        node(f"n{turn % 2}")
        with leader.leading() as leadership:
            assert leadership is not None
        expire()
    node("n0")
    with leader.leading() as fifth:
        assert fifth is None, "four changes within a minute are enough"
    row = Lease.objects.get(name="lifecycle")
    row.changes = [(timezone.now() - timedelta(seconds=120)).isoformat()] * 4
    row.save()
    with leader.leading() as calm:
        assert calm is not None


def test_a_leader_that_was_stopped_or_cannot_renew_calls_nothing_nor_do_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, half, made = stopping(monkeypatch), leader.lease_life().total_seconds() / 2, list[str]()

    def ask(name: str) -> None:
        retry_call(partial(made.append, name))

    with leader.leading() as leadership:
        assert leadership is not None
        stop(half)
        leadership.renew()
        stop(half)
        ask("renewed half a life ago")
        stop(half)
        with pytest.raises(LeaseLost):
            ask("its life is over")
        with pytest.raises(LeaseLost):
            list(side_by_side({name: partial(ask, name) for name in ("one", "another")}, lambda: None))
        with pytest.raises(ZeroDivisionError), leadership.fenced():
            raise ZeroDivisionError  # what is not committed has renewed nothing
        with pytest.raises(LeaseLost):
            ask("still not renewed")
        leadership.renew()  # nobody else led meanwhile
        ask("renewed")
    assert made == ["renewed half a life ago", "renewed"]
