"""Several requests live through anything: operations, DAG outcomes, failing services, dying and doubled processes, in any order.

The rules are ``tests.support.scripted.lives``; here is how long they run, and what a run must have come across to count.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.scripted import actions
from tests.support.scripted.lives import Lives
from tests.support.scripted.world import World

HERE = "tests/requests_app/test_stateful.py"
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
#: Lives of the quick and of the long run, always the same ones; with the variable set it goes looking for new ways.
FEW, MANY = 3, 24
LONG = "WMS2_STATEFUL_EXAMPLES"
PROFILE = settings(
    stateful_step_count=25,
    derandomize=LONG not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),  # a failure is told as it was found: shrinking it takes minutes
)
#: Different services that a few lives must have had accepted; that each of them can be: ``test_stateful_reach``.
LEAST_SERVICES = 5


@pytest.mark.dear("anything in any order: what no other test thought of")
def test_nothing_that_happens_to_requests_loses_work_or_leaves_them_stuck(
    world_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(FEW, world_root, monkeypatch)


@pytest.mark.deep(f"{HERE}::test_nothing_that_happens_to_requests_loses_work_or_leaves_them_stuck")
def test_nor_in_many_lives(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live(int(os.environ.get(LONG, MANY)), world_root, monkeypatch)


def live(lives_asked: int, world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(world_root, monkeypatch, MAX_VERSIONS="3")
    world.sweep_every = 1
    lives = type("LivesHere", (Lives,), {"world": world})
    run_state_machine_as_test(lives, settings=settings(PROFILE, max_examples=lives_asked))
    tally = world.tally
    print(tally.reported())
    services = {action.function.__name__ for action in actions.ASKED if tally.accepted[action.name]}
    assert tally.lives >= lives_asked, "lives ended before they were brought to rest"
    assert tally.refused, "no verb was ever refused"
    assert len(services) >= LEAST_SERVICES, f"random lives had no more accepted than {services}"
