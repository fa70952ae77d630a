"""A month of WMS2 beside CMS's services: none of its requests is lost, done twice, left unprotected or unannounced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.limits import set_limits
from tests.support.reqmgr2_world import Outside
from tests.support.scripted.month import Month
from tests.support.scripted.world import World
from wms2.adapters import factory
from wms2.conf import conf

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests/requests_app/reqmgr2/test_month.py"


@pytest.fixture(autouse=True)
def as_in_production(world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, max_active_dags=60)
    settings = {"SOURCE_RULE_DAYS": "2", "CLEANER_ENABLED": "true"}
    settings["WMSTATS_URL"] = f"{outside.simulators.url}/wmstatsserver/data"
    for name, value in settings.items():
        monkeypatch.setenv(f"WMS2_{name}", value)
    conf.cache_clear()
    factory.wmstats.cache_clear()
    world.sweep_every = 50


@pytest.mark.dear("all neighbours at once: what no other test thought of")
def test_a_few_days_with_every_neighbour_lose_nothing(world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six requests of ours: the work queue takes one, fails one and its agents pull one; people force, reject and abort."""
    live(Month(world, outside, monkeypatch, 6), steps=20, hours=13.0, arriving=3)


@pytest.mark.deep(f"{HERE}::test_a_few_days_with_every_neighbour_lose_nothing")
def test_nor_does_a_month_of_two_hundred_requests(world: World, outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    live(Month(world, outside, monkeypatch, 150), steps=240, hours=3.0, arriving=5)


def live(month: Month, **pace: Any) -> None:
    try:
        month.live(**pace)
        month.check_the_end()
    finally:
        print(f"\n{month.table()}")
