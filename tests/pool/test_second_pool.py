"""The second pool of the tests: apart from the first, and silent, out of reach or dead when a test wants it to be."""

from __future__ import annotations

import pytest

from tests.support.adapter_pool import Pool
from tests.support.second_pool import SecondPool
from tests.support.waiting import until
from wms2.errors import ServiceUnavailable

pytestmark = [pytest.mark.pool, pytest.mark.slow]


@pytest.fixture
def first() -> Pool:
    return Pool.from_environment()


@pytest.fixture
def second(first: Pool, second_pool: SecondPool) -> Pool:
    return Pool(first.root, second_pool.schedd_name, second_pool.collector, second_pool.token_dir)


def test_a_dag_that_one_pool_is_given_runs_there_and_its_token_opens_no_other(first: Pool, second: Pool) -> None:
    here, there = first.adapter(instance=second.instance), second.adapter()
    dag = second.dag(seconds=2)
    dag.submit(there)
    until(lambda: len(there.watch(second.instance).dagmans) == 2)
    assert not here.watch(second.instance).dagmans
    until(lambda: not there.watch(second.instance).dagmans)
    assert (dag.directory / "workflow.dag.metrics").exists()
    first.token_dir = second.token_dir
    with pytest.raises(ServiceUnavailable):
        first.adapter(timeout_seconds=3).watch(first.instance)


@pytest.mark.parametrize("how", ["frozen", "cut_off"])
def test_a_silent_pool_says_nothing_and_goes_on_afterwards(first: Pool, second: Pool, second_pool: SecondPool, how: str) -> None:
    with getattr(second_pool, how)():
        with pytest.raises(ServiceUnavailable):
            second.adapter(timeout_seconds=2).watch(second.instance)
        assert first.adapter().watch(first.instance).about.name == first.schedd_name
    assert second.adapter().watch(second.instance).about.name == second_pool.schedd_name


def test_a_pool_that_is_killed_comes_back_with_its_queue(second: Pool, second_pool: SecondPool) -> None:
    adapter = second.adapter(timeout_seconds=5)
    second.dag(seconds=300).submit(adapter)
    until(lambda: len(adapter.watch(second.instance).dagmans) == 2)
    second_pool.kill()
    with pytest.raises(ServiceUnavailable):
        adapter.watch(second.instance)
    second_pool.start()
    until(lambda: len(adapter.watch(second.instance).dagmans) == 2)
    (outer,) = [ad for ad in adapter.watch(second.instance).dagmans if ad.parent_cluster is None]
    adapter.remove(outer.cluster, "the test is over", str(outer.dag_id))
    until(lambda: not adapter.watch(second.instance).dagmans)
