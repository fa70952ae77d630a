"""Partial production on the real stack: a request gives way to another at its steps, and loses nothing (spec 6.2.1, DD-11)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from dags_app.models import DAG, DAGKind
from requests_app.models import Request, RequestStatus, RequestTransition
from requests_app.services import Received, request_import
from tests.support.faults import fault
from tests.support.outcomes import assert_completed, ended
from tests.support.stack import small_request, worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
UNITS, PER_JOB = 6, 10
#: One DAG at a time, and one unit at a time in it, so that it is seen who goes before whom.
NARROW = {"max_active_dags": 1, "dag_max_merge_groups": 1, "jobs_per_work_unit": 1}


def imported(units: int, priority: int, steps: list[dict[str, Any]]) -> Request:
    """A request of so many units of one job."""
    document = small_request(units * PER_JOB, PER_JOB)
    document["createRequest"]["RequestPriority"] = priority
    return request_import(document=document, request_name=None, actor="tester", asked=Received(production_steps=steps))


@fault(
    "production steps at 10 % and 50 %, beside a request of middle priority",
    done="a request of priority 100000 steps back to 80000, then to 50000; one of 70000 waits for the only DAG slot",
    spec="spec 6.2.1; DD-11",
    afterwards="the second step lets the other run to its end before the rest; each event once, a rescue for each stop",
)
@pytest.mark.deep(
    "tests/requests_app/work/test_production_steps.py::"
    "test_at_each_step_the_request_stops_without_loss_and_goes_on_with_less_priority"
)
def test_a_request_steps_back_behind_another_and_both_are_made_once(ready: None) -> None:
    steps = [{"fraction": 0.1, "priority": 80_000}, {"fraction": 0.5, "priority": 50_000}]
    large = imported(UNITS, 100_000, steps)
    other = imported(1, 70_000, [])
    with worker(**NARROW) as running:
        running.wait(lambda: ended(large) and ended(other), seconds=600)

    assert_completed(large)
    assert_completed(other)
    assert (large.priority, large.production_steps) == (50_000, [])
    kinds = DAG.objects.filter(workflow__request=large).order_by("created_at").values_list("kind", flat=True)
    assert list(kinds) == [DAGKind.FRESH, DAGKind.STOP_RESCUE, DAGKind.STOP_RESCUE]

    runs = RequestTransition.objects.filter(to_status=RequestStatus.ACTIVE).order_by("id")
    turns = list(runs.values_list("request__request_name", flat=True))
    assert turns == [large.request_name, large.request_name, other.request_name, large.request_name]
    done = [dag.units_done for dag in DAG.objects.filter(workflow__request=large).order_by("created_at")]
    assert all(before < after for before, after in pairwise(done)), done
    assert done[0] < UNITS / 2, "it stepped back for the first time long before the second"
