"""What the stateful test must know: every operation and every edge there is, each of them come across on a fixed tour.

A new operation that no rule says, a new edge that nothing takes, or a handler of a status that nobody reaches fails here.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dags_app.services
import outputs_app.checks.cases
import outputs_app.services
import requests_app.harvesting.jobs
import requests_app.services
import sites_app.services
from dags_app import states as dag_states
from dags_app.models import DAGStatus
from outputs_app.models import DatasetState
from requests_app.lifecycle.evaluator import HANDLERS
from requests_app.models import HoldCode, RequestStatus
from requests_app.states import TRANSITIONS
from tests.support.scripted import actions, lives, tour
from tests.support.scripted.lives import Lives
from tests.support.scripted.scenes import SCENES
from tests.support.scripted.world import World

S = RequestStatus
#: No code takes a request there yet.
UNBUILT: set[RequestStatus] = set()
#: The tour cleans in some statuses; tests/requests_app/lifecycle/test_cleaning.py does in each.
CLEANED_FROM = {S.STOPPING, S.HELD, S.QUEUED}
EDGES = {
    (old, new)
    for old, edges in TRANSITIONS.items()
    for new in edges
    if not {old, new} & UNBUILT and (new is not S.CLEANING or old in CLEANED_FROM)
}
#: Codes that no request of the scripted world can get, and why.
UNREACHED_CODES = {
    HoldCode.RUN_ELSEWHERE: "is for what comes from ReqMgr2; tests/requests_app/reqmgr2/test_acquiring.py",
    HoldCode.FAILED_ELSEWHERE: "as well; tests/requests_app/reqmgr2/test_following.py",
    HoldCode.TIMEOUT: "needs a step that fails for an hour; tests/requests_app/lifecycle/test_lifecycle_loop.py",
    HoldCode.LEDGER: "random lives; tests/requests_app/lifecycle/test_lifecycle.py",
    HoldCode.SHORT: "random lives; tests/requests_app/lifecycle/test_lifecycle.py",
    HoldCode.REFUSED: "random lives; tests/requests_app/lifecycle/test_lifecycle.py",
}
#: Edges of DAGs that leave no trace of their own in a history, or that only random lives take.
UNTOLD_DAG_EDGES = {DAGStatus.PLANNING}


def services_with_an_actor() -> set[str]:
    """Public functions of the apps' services, and of what stands in for them, that somebody uses under a name."""
    found = set()
    packages = (requests_app.services, dags_app.services)
    names = [each.name for package in packages for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    others = (sites_app.services, outputs_app.services, outputs_app.checks.cases, requests_app.harvesting.jobs)
    for module in (*map(importlib.import_module, names), *others):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and "actor" in inspect.signature(function).parameters and module.__name__ != "requests_app.services.common":
                found.add(name)
    return found


def test_each_verb_is_driven_by_the_machine_or_says_why_not() -> None:
    known = actions.driven() | actions.NOT_DRIVEN.keys()
    assert services_with_an_actor() - known == set(), "teach tests/support/scripted/actions.py the new verb"
    assert known - services_with_an_actor() == set(), "tests/support/scripted/actions.py names services that are gone"


def test_a_status_that_gets_a_handler_becomes_part_of_the_lives() -> None:
    assert not {S(status) for status in HANDLERS} & UNBUILT, "teach the tour the new status, and take it out of UNBUILT"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_each_scene_that_a_life_begins_with_comes_about(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(world_root, monkeypatch, MAX_VERSIONS="3")
    for scene in SCENES.values():
        lives.fresh(world)
        scene(world)  # each asserts what it is for


@pytest.mark.deep("tests/requests_app/test_stateful.py::test_nothing_that_happens_to_requests_loses_work_or_leaves_them_stuck")
@pytest.mark.django_db(transaction=True)
def test_a_fixed_tour_takes_every_edge_and_has_every_verb_accepted(world_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(world_root, monkeypatch, MAX_VERSIONS="3")
    world.sweep_every = 1
    tour.go(world)
    tally = world.tally
    expected = {action.name for action in actions.ASKED} - {"release: too much memory", "release: impossible"}
    assert expected - tally.accepted.keys() == set(), "verbs that were never accepted"
    assert actions.driven() - {action.function.__name__ for action in actions.ASKED} - tally.accepted.keys() == set()
    taken = {(S(old), S(new)) for old, new in tally.edges}
    assert {edge for edge in taken if set(edge) & UNBUILT} == set(), "edges to statuses that are said to be unbuilt"
    assert EDGES - taken == set(), "edges that were never taken"
    codes = {HoldCode(name.removeprefix("hold:")) for name in tally.reached if name.startswith("hold:") and name != "hold:"}
    assert set(HoldCode) - UNREACHED_CODES.keys() - codes == set(), "hold codes that were never reached"
    assert {f"dataset:{state}" for state in DatasetState} - tally.reached.keys() == set()
    assert {"alert:queue_suspected", "alert:dag_returned"} - tally.reached.keys() == set()
    ends = {DAGStatus(new) for _, new in tally.dag_edges}
    assert set(dag_states.TRANSITIONS) - UNTOLD_DAG_EDGES - ends - {DAGStatus.READY} == set(), "DAG statuses never reached"


def a_worker_is_cut_off(life: Lives) -> None:
    SCENES["running"](life.world)
    life.a_worker_is_cut_off_from_the_database("rucio", seconds=lives.PAUSE_SECONDS, cycles=1)
    life.work_goes_on()


def a_drain_is_late(life: Lives) -> None:
    SCENES["draining"](life.world)
    life.a_worker_is_paused("directory", which=0, action="note", cycles=3, answered=False, seconds=lives.PAUSE_SECONDS)
    life.cycle()


def a_registration_is_slow(life: Lives) -> None:
    """Its claim and its lease run on, so nothing but the wait of what takes outputs back guards it."""
    SCENES["running"](life.world)
    life.a_worker_is_paused("dbs", which=1, action="clean", cycles=6, answered=False, seconds=0)
    for _ in range(4):
        life.work_goes_on()


def a_stranger_is_found(life: Lives) -> None:
    _queued(life)
    life.a_stranger_has_our_stamps(which=0, idle_jobs=0, asked=True)
    life.cycle()


def strangers_wait(life: Lives) -> None:
    SCENES["running"](life.world)
    life.a_stranger_has_our_stamps(which=0, idle_jobs=lives.FLOOD, asked=False)
    life.cycle()


def a_later_release_writes(life: Lives) -> None:
    _queued(life)
    life.a_later_release_has_written(which=0)
    life.cycle()


def _queued(life: Lives) -> None:
    life.ask_for_a_generation(100, submit=True)
    life.evaluate(which=0, steps=1)
    assert life.requests[0].status == S.QUEUED


CLEANING = "tests/requests_app/lifecycle/test_cleaning.py"
HEARTBEAT, REPLACED = "tests/wms2/test_heartbeat.py", "tests/requests_app/lifecycle/test_replaced_processes.py"
#: Lives that faults of ``tests/planted`` must break, and the quick test that each of these breaks, too.
BROKEN = {
    a_worker_is_cut_off: f"{HEARTBEAT}::test_a_process_that_was_stopped_for_longer_than_its_lease_lasts_makes_no_call",
    a_drain_is_late: f"{REPLACED}::test_a_late_drain_does_not_halt_the_submission_that_goes_on",
    a_registration_is_slow: f"{CLEANING}::test_a_worker_that_was_paused_before_its_call_brings_nothing_back",
    a_stranger_is_found: f"{REPLACED}::test_a_strangers_dagman_with_the_dags_id_is_not_taken_for_it",
    strangers_wait: f"{REPLACED}::test_strangers_jobs_with_our_stamps_are_no_load_of_ours",
    a_later_release_writes: "tests/requests_app/test_next_release.py::"
    "test_one_request_with_keys_of_the_next_release_keeps_no_other_from_starting",
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "live", [pytest.param(live, marks=pytest.mark.deep(quick), id=live.__name__) for live, quick in BROKEN.items()]
)
def test_the_machines_rules_find_what_they_are_for(
    live: Callable[[Lives], None], world_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "event", lambda text: None)  # Hypothesis counts them within its own runs
    world = World(world_root, monkeypatch, MAX_VERSIONS="3")
    life = type("LivesHere", (Lives,), {"world": world})()
    live(life)
    life.all_is_in_order()


@pytest.mark.deep("tests/requests_app/test_stateful.py::test_nothing_that_happens_to_requests_loses_work_or_leaves_them_stuck")
@pytest.mark.django_db(transaction=True)
def test_a_cycle_beside_a_watcher_that_is_stopped_leaves_the_watching_to_it(
    world_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "event", lambda text: None)
    world = World(world_root, monkeypatch, MAX_VERSIONS="3")
    life = type("LivesHere", (Lives,), {"world": world})()
    SCENES["running"](world)
    life.a_worker_is_paused("htcondor", which=0, action="pin", cycles=1, answered=True, seconds=0)
    life.observe()
    life.all_is_in_order()
