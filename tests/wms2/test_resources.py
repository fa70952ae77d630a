"""Resources that must not be oversubscribed: leases are taken, kept alive, given back and run out, over REST too."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from outputs_app.effects import Handler, executor
from outputs_app.models import Effect, EffectKind, EffectState
from tests.support.calls import overdue
from tests.support.rows import new_effect
from wms2.adapters.caller import retry_call
from wms2.errors import LeaseLost, ResourceBusy
from wms2.models import AuditEntry, Resource, ResourceLease
from wms2.work import resources
from wms2.work.resources import PLANNING, REGISTRATION, lease_beat, lease_take, resource

pytestmark = pytest.mark.django_db


def units(number: int, name: str = PLANNING) -> None:
    Resource.objects.filter(pk=name).update(units=number)


def took(number: int, ttl: float = 60, name: str = PLANNING) -> ResourceLease:
    return lease_take(name=name, units=number, holder="a plan", process="here:1", ttl_seconds=ttl)


def test_no_more_units_are_out_than_there_are_and_whoever_gets_none_is_told_at_once() -> None:
    units(10)
    with resource(PLANNING, 6, "first"):
        with pytest.raises(ResourceBusy, match="5 of 10 MB of memory of plans, of which 6 are taken"):
            took(5)
        took(4)
    took(6)


def test_what_is_larger_than_all_there_is_gets_all_of_it() -> None:
    units(10)
    with resource(PLANNING, 500, "large"):
        assert ResourceLease.objects.get().units == 10


def test_where_operators_allow_none_what_wants_some_waits() -> None:
    units(0)
    with pytest.raises(ResourceBusy, match="there are 0 in all"), resource(PLANNING, 1, "a plan"):
        pass


def test_a_lease_that_nobody_keeps_alive_runs_out_is_audited_and_cannot_be_prolonged() -> None:
    units(10)
    lease = took(10)
    assert lease_beat(lease.token)
    ResourceLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not lease_beat(lease.token)
    took(10)
    entry = AuditEntry.objects.get(action="lease_expire")
    assert (entry.target, entry.evidence["holder"]) == (PLANNING, "a plan")


def test_what_works_under_a_lost_lease_is_stopped_at_its_next_call_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_TTL_SECONDS", 0.03)
    said = threading.Event()

    def lost(_: Any) -> bool:
        said.set()
        return False

    monkeypatch.setattr(resources, "lease_beat", lost)
    with pytest.raises(LeaseLost), resource(PLANNING, 1, "slow"):
        said.wait(10)
        while True:
            retry_call(lambda: None)


@pytest.mark.django_db(transaction=True)
def test_of_many_that_ask_at_once_only_so_many_get_any() -> None:
    units(3)

    def one(_: int) -> bool:
        try:
            took(1)
        except ResourceBusy:
            return False
        finally:
            connections["default"].close()
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(one, range(16))) == 3


def test_a_block_waits_for_a_slot_of_registration_and_blocks_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def call(effect: Effect) -> dict[str, str]:
        calls.append(effect.key)
        return {}

    handler = Handler(call, lambda effect, result: None)
    monkeypatch.setattr(executor, "HANDLERS", dict.fromkeys(EffectKind.values, handler))
    units(1, REGISTRATION)
    lease = took(1, name=REGISTRATION)
    row = new_effect(kind=EffectKind.DBS_BLOCK)

    executor.effects_run_due(owner="test")
    row.refresh_from_db()
    assert (row.state, row.attempts, row.first_failed_at, calls) == (EffectState.PENDING, 0, None, [])
    assert row.last_error.startswith("waits for registration: 1 of 1")

    lease.delete()
    Effect.objects.update(next_attempt_at=overdue())
    executor.effects_run_due(owner="test")
    row.refresh_from_db()
    assert (row.state, calls) == (EffectState.DONE, [row.key])
    assert not ResourceLease.objects.exists()
