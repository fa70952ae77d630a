"""What every test may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from pytest_django import DjangoDbBlocker
from xdist.remote import Producer

from tests.support import costs, databases, faults, flushing, marks, second_pool, side_by_side
from tests.support import stack as test_stack
from tests.support.module_rows import module_rows
from tests.support.places import ROOT, real_inputs
from tests.support.scheduling import PoolBesideTheRest
from wms2.api import rate_limits
from wms2.conf import conf
from wms2.identities import denials
from wms2.runtime import in_force, levels
from wms2.runtime.cached import Cached
from wms2.runtime.circuits import circuits, use_circuits
from wms2.runtime.shared_counts import SharedCounts
from wms2.web import login_throttle, shedding

__all__ = ["module_rows"]
pytest.register_assert_rewrite("tests.pool.faulty_units")
side_by_side.set_apart()
flushing.cheaply()
#: No time is asserted: a busy machine fails no property.
hypothesis.settings.register_profile(
    "any speed", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")


def pytest_configure(config: pytest.Config) -> None:
    faults.register(config)
    costs.register(config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> PoolBesideTheRest | None:
    return PoolBesideTheRest(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (config.getoption("loadgroup", False) and side_by_side.is_for_others(collection_path, config.args)) or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wrong = [text for item in items if (text := marks.problem(item, ROOT))]
    if wrong:
        raise pytest.UsageError(*wrong)
    for item in items:
        item.unit_name = side_by_side.name_of(item)  # type: ignore[attr-defined]
    if config.getoption("loadgroup", False):  # how xdist tells its processes
        side_by_side.arrange(items)


def pytest_collection_finish() -> None:
    """What was read once lives as long as the process: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_blocker: DjangoDbBlocker, django_db_modify_db_settings: None
) -> Iterator[None]:
    """A database of this process's own, instead of one that each process migrates by itself."""
    with django_db_blocker.unblock(), databases.of_this_process(), django_db_blocker.block():
        yield


@pytest.fixture(autouse=True)
def _configuration_is_read_again() -> Iterator[None]:
    """A test that changes settings through the environment leaves none of them to the next."""
    yield
    conf.cache_clear()


@pytest.fixture(autouse=True)
def _limits_are_read_at_no_time_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many queries a test makes does not hang on when it makes them; those of limits at run time read them."""
    in_force.forget()
    monkeypatch.setattr(in_force, "_changed", dict)


@pytest.fixture(autouse=True)
def _the_queue_is_ranked_for_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test or call has seen of it is not told to the next; tests of that ask for it."""
    monkeypatch.setattr("requests_app.selectors.admission.CACHED_SECONDS", 0.0)
    for name in ("_cache", "_first", "_known", "_head"):  # by fixtures of a module, before this one
        monkeypatch.setattr(f"requests_app.selectors.admission.{name}", Cached())
    monkeypatch.setattr("requests_app.pages.cached.CACHED_SECONDS", 0.0)
    monkeypatch.setattr("requests_app.pages.cached._parts", Cached(200))
    monkeypatch.setattr("requests_app.pages.cached._large_parts", Cached(30))
    monkeypatch.setattr("requests_app.selectors.samples.CACHED_SECONDS", 0.0)
    monkeypatch.setattr("requests_app.selectors.samples._series", Cached(200))


@pytest.fixture(autouse=True)
def _gauges_are_read_for_each_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of them."""
    monkeypatch.setattr("requests_app.monitoring.metrics.CACHED_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _every_circuit_is_closed() -> None:
    """What one test did to a service is not known to the next, nor to the stack's own processes."""
    use_circuits(SharedCounts())


@pytest.fixture(autouse=True)
def _no_sign_in_has_failed() -> None:
    """Wrong passwords and tokens of one test are not counted against the next; its denials are the first to be audited."""
    login_throttle.attempts = SharedCounts()
    denials.counted = SharedCounts()


@pytest.fixture(autouse=True)
def _all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page or limit of a test follows the load of some moment, nor do its clients wait; tests of these ask for them."""
    levels.use(levels.KnownLevel)
    monkeypatch.setattr(shedding, "_load", shedding.Load(database=lambda: 0.0))
    rate_limits.use(None)


@pytest.fixture(scope="session", name="real_inputs")
def _real_inputs() -> Path:
    return real_inputs()


@pytest.fixture(scope="session")
def outside_world() -> None:
    """The simulated services know what the demo's requests need. Skips without a test stack."""
    reason = test_stack.missing()
    if reason:
        pytest.skip(reason)
    from deploy.simulators import seed
    from deploy.simulators.client import Caller

    base = os.environ["WMS2_REQMGR2_URL"].removesuffix("/reqmgr2/data")
    seed.apply(Caller(base, login="seed"), ROOT / "deploy/demo/seed.json")


@pytest.fixture(scope="session", name="second_pool")
def _second_pool() -> Iterator[second_pool.SecondPool]:
    """Another pool beside the stack's own; skips without a test stack."""
    yield from second_pool.second_pool()


@pytest.fixture
def ready(transactional_db: None, outside_world: None) -> None:
    """An installation as ``wms2_init`` leaves it, in this test's database."""
    from requests_app.installation import installation_claim
    from sites_app.sync import schedd_ensure_configured, sites_sync
    from wms2.apps import broker

    use_circuits(SharedCounts(broker("circuit", "nothing is left there")))
    circuits().clear()  # what a worker that was killed has left to the next
    use_circuits(SharedCounts())
    installation_claim()
    schedd_ensure_configured()
    sites_sync()
