"""Two real pools: what befalls one costs the other nothing, full ones are passed over, what is moved is done once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dags_app.models import DAG, IN_QUEUE
from requests_app.models import AFTER_WORK, Request, RequestStatus
from requests_app.selectors.drains import drain_progress
from requests_app.services import request_move
from sites_app.models import Pool, Schedd, ScheddState
from sites_app.services import schedd_change_state, schedd_drain
from tests.support.inputs import seeded_input, small_reprocessing
from tests.support.outcomes import assert_completed, assert_completed_once, assert_each_event_once, imported, status, units_done
from tests.support.pool_processes import PoolProcesses
from tests.support.second_pool import SecondPool, second_schedd
from tests.support.stack import Worker, worker
from tests.support.waiting import until
from wms2.errors import InvalidTransition

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.slow]
S = RequestStatus
BY: dict[str, Any] = {"actor": "tester", "reason": "for the test"}
#: Units of one job that run one after the other: some are done and some are not whenever a DAG is stopped.
SLOWLY = {"jobs_per_work_unit": 1, "dag_max_merge_groups": 1}
QUICKLY = {"WMS2_SERVICE_TIMEOUT_SECONDS": "3"}


@pytest.fixture
def there(ready: None, second_pool: SecondPool) -> Schedd:
    """The second pool's schedd, in service."""
    return second_schedd(second_pool)


@pytest.fixture
def here(there: Schedd) -> Schedd:
    """The stack's own."""
    return Schedd.objects.exclude(pk=there.pk).get()


def given_to(schedd: Schedd, running: Worker, **more: int) -> Request:
    """A new request whose DAG runs at a schedd."""
    others = Schedd.objects.exclude(pk=schedd.pk).filter(state=ScheddState.ENABLED)
    closed = list(others.values_list("pk", flat=True))
    others.update(state=ScheddState.DISABLED)
    request = imported(**more)
    running.wait(lambda: runs_at(request, schedd), seconds=90)
    Schedd.objects.filter(pk__in=closed).update(state=ScheddState.ENABLED)
    return request


def runs_at(request: Request, schedd: Schedd) -> bool:
    return (
        DAG.objects.filter(workflow__request=request, schedd=schedd, status__in=IN_QUEUE).exclude(dagman_cluster_id="").exists()
    )


def left_active(request: Request) -> bool:
    """Whether all its work is done and registered."""
    return status(request) in (*AFTER_WORK, S.COMPLETED)


def all_complete(*requests: Request) -> Callable[[], bool]:
    return lambda: all(status(request) == S.COMPLETED for request in requests)


@pytest.mark.alone
@pytest.mark.deep(
    "tests/pool/test_two_pools.py::test_a_pool_that_freezes_is_cut_off_or_dies_costs_the_requests_of_the_other_nothing"
)
def test_while_the_first_pool_is_frozen_cut_off_or_dies_the_second_serves_and_nothing_of_the_first_is_lost(
    here: Schedd, there: Schedd
) -> None:
    first, others = PoolProcesses(os.environ), list[Request]()
    with worker(**SLOWLY, **QUICKLY) as running:
        waiting = [given_to(here, running, events=60)]
        for silent, served in ((first.frozen, left_active), (first.cut_off, partial(runs_at, schedd=there))):
            with silent():
                was = status(waiting[0])  # before the second time it may have been done
                running.wait(lambda: Schedd.objects.filter(pk=here.pk, unreachable_since__isnull=False).exists(), seconds=60)
                others.append(imported(events=20))
                running.wait(partial(served, others[-1]), seconds=120)
                assert was != S.ACTIVE or status(waiting[0]) == S.ACTIVE, "silence proves nothing"
            running.wait(lambda: not Schedd.objects.filter(unreachable_since__isnull=False).exists(), seconds=60)
        others.append(given_to(there, running, events=20))
        waiting.append(given_to(here, running))
        first.kill()
        until(first.serves, "the stack has started it again", seconds=120)
        running.wait(all_complete(*waiting, *others), seconds=300)
    for request, schedd in (*((each, here) for each in waiting), *((each, there) for each in others)):
        assert_completed_once(request)
        assert DAG.objects.get(workflow__request=request).schedd == schedd, "it went on where it was"


@pytest.mark.dear("the only one with two real pools of which one is lost")
def test_a_pool_that_freezes_is_cut_off_or_dies_costs_the_requests_of_the_other_nothing(
    second_pool: SecondPool, here: Schedd, there: Schedd
) -> None:
    with worker(**SLOWLY, **QUICKLY) as running:
        waiting, others = given_to(there, running), list[Request]()
        for silent in (second_pool.frozen, second_pool.cut_off):
            with silent():
                running.wait(lambda: Schedd.objects.filter(pk=there.pk, unreachable_since__isnull=False).exists(), seconds=60)
                others.append(imported(events=20))
                running.wait(lambda: left_active(others[-1]), seconds=120)
                assert set(DAG.objects.filter(workflow__request=others[-1]).values_list("schedd", flat=True)) == {here.pk}
                assert status(waiting) == S.ACTIVE, "silence proves nothing"
            running.wait(lambda: not Schedd.objects.filter(unreachable_since__isnull=False).exists(), seconds=60)
            if status(waiting) != S.ACTIVE:  # it was done as soon as it was seen again
                break
        second_pool.kill()
        others.append(imported(events=20))
        running.wait(lambda: left_active(others[-1]), seconds=120)
        second_pool.start()
        running.wait(all_complete(waiting, *others), seconds=240)
    for request in (waiting, *others):
        assert_completed(request)
    assert DAG.objects.get(workflow__request=waiting).schedd == there, "it went on where it was"


@pytest.mark.deep(
    "tests/requests_app/services/test_moving.py::"
    "test_a_drain_moves_so_many_at_a_time_the_longest_running_first_and_tells_when_it_is_done"
)
def test_a_full_schedd_is_passed_over_and_one_that_is_drained_hands_over_what_runs(here: Schedd, there: Schedd) -> None:
    Schedd.objects.filter(pk=here.pk).update(state=ScheddState.DISABLED)  # other tests' DAGMans there would count
    Schedd.objects.filter(pk=there.pk).update(max_dagman_slots=4)  # room for two DAGs with one unit at once
    with worker(**SLOWLY) as running:
        requests = [imported(events=60) for _ in range(4)]
        running.wait(lambda: sum(runs_at(request, there) for request in requests) == 2, seconds=120)
        full = Request.objects.filter(status=S.QUEUED, waiting_for__contains=f"{there.name}: 2 DAGs with 4 of 4")
        running.wait(full.exists, seconds=60)
        Schedd.objects.filter(pk=here.pk).update(state=ScheddState.ENABLED)
        running.wait(lambda: sum(runs_at(request, here) for request in requests) == 2, seconds=60)
        there.refresh_from_db()
        schedd_drain(schedd=there, move=True, at_once=1, **BY)
        progress = drain_progress(there)
        assert (progress.left, progress.moved, progress.drained) == (2, 0, False)
        running.wait(lambda: drain_progress(Schedd.objects.get(pk=there.pk)).drained, seconds=180)
        running.wait(lambda: Schedd.objects.get(pk=there.pk).drained_at is not None, seconds=30)
        # while one was moved, another may have come to its end
        moved = [request for request in requests if DAG.objects.filter(workflow__request=request).count() > 1]
        assert moved
        assert drain_progress(Schedd.objects.get(pk=there.pk)).words()[0].startswith("Drained since")
        running.wait(all_complete(*requests), seconds=240)
    for request in requests:
        assert_completed(request)
    for request in moved:
        last = DAG.objects.filter(workflow__request=request).latest("fence")
        assert last.schedd == here
        assert (last.placement["moved"]["from"], last.placement["moved"]["by"]) == (there.name, "tester")
    there.refresh_from_db()
    schedd_change_state(schedd=there, state=ScheddState.ENABLED, **BY)
    assert not drain_progress(there).words(), "taken back"


def test_a_running_dag_that_is_moved_goes_on_elsewhere_and_each_event_is_registered_once(
    here: Schedd, there: Schedd, tmp_path: Path
) -> None:
    with worker(**SLOWLY) as running:
        near = given_to(there, running, events=60)
        running.wait(lambda: units_done(near) > 0, seconds=120)
        request_move(request=near, to=here, **BY)
        with pytest.raises(InvalidTransition, match="It is at"):
            request_move(request=near, to=there, **BY)
        running.wait(lambda: runs_at(near, here) or all_complete(near)(), seconds=120)
        first, second = DAG.objects.filter(workflow__request=near).order_by("fence")
        assert (first.schedd, second.schedd, second.kind) == (there, here, "stop_rescue")
        assert second.submit_dir == first.submit_dir
        assert second.placement["moved"] == {"from": there.name, "to": here.name, "by": "tester", "why": "for the test"}

        far = imported(small_reprocessing(seeded_input(tmp_path)))
        running.wait(lambda: status(far) == S.ACTIVE and units_done(far) > 0, seconds=180)
        Pool.objects.filter(pk=there.pool_id).update(file_system="its own")
        was = DAG.objects.get(workflow__request=far).schedd
        request_move(request=far, **BY)
        running.wait(all_complete(near, far), seconds=300)
        Pool.objects.filter(pk=there.pool_id).update(file_system=here.pool.file_system)
    assert_completed(near)
    assert_completed(far)
    first, second = DAG.objects.filter(workflow__request=far).order_by("fence")
    assert (first.schedd, second.kind) == (was, "fresh")
    assert second.schedd != was
    for request in (near, far):
        assert_each_event_once(request, 60)
