"""Several requests live through anything: verbs, DAG outcomes, failing services, dying and doubled processes, in any order.

After every step ``tests.support.scripted.invariants`` must hold. At the end all faults stop, an operator does what the runbook
says, and every request must come to rest within so many cycles, and from HELD go on when it is released.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from django.apps import apps
from django.db import connection
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from outputs_app.models import EffectKind
from requests_app.models import HoldCode, Request, RequestStatus
from requests_app.services import request_abort, request_hold, request_release, request_set_priority, request_submit
from tests.support.scripted import documents, invariants
from tests.support.scripted.dagman import Account
from tests.support.scripted.faults import Mode
from tests.support.scripted.schedd import End
from tests.support.scripted.world import World
from wms2.errors import InvalidTransition

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
S = RequestStatus
AT_REST = (S.NEW, S.COMPLETED, S.ABORTED, S.HELD)
MOST_REQUESTS = 3
#: Cycles of ten minutes, longer than any pause between attempts in this world.
MOST_CYCLES = 30
MOST_RELEASES = 4
CRASH_POINTS = (
    "import.claimed", "import.called", "import.recorded", "plan.claimed", "plan.called", "plan.recorded",
    "submit.claimed", "submit.called", "submit.recorded", "poll.called", "poll.recorded", "register.claimed",
    "register.recorded", "stop.claimed", "stop.called",
    *(f"{kind}.{point}" for kind in EffectKind.values for point in ("claimed", "called", "recorded")),
)  # fmt: skip
VERBS: dict[str, Callable[[Request], None]] = {
    "submit": lambda r: request_submit(request=r, actor="op"),
    "abort": lambda r: request_abort(request=r, actor="op", reason="by the test"),
    "hold": lambda r: request_hold(request=r, actor="op", reason="by the test"),
    "release": lambda r: request_release(request=r, actor="op", reason="by the test"),
    "raise": lambda r: request_set_priority(request=r, priority=900_000, actor="op", reason="by the test"),
    "lower": lambda r: request_set_priority(request=r, priority=1, actor="op", reason="by the test"),
}
which = st.integers(0, 10)
OURS = ("requests_app", "dags_app", "outputs_app", "sites_app")
T = TypeVar("T")
PROFILE = settings(
    max_examples=int(os.environ.get("WMS2_STATEFUL_EXAMPLES", "25")),
    stateful_step_count=30,
    derandomize="WMS2_STATEFUL_EXAMPLES" not in os.environ,  # with the variable set it goes looking for new ways
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),  # a failure is told as it was found: shrinking it takes minutes
)


def machine(world: World) -> type[RuleBasedStateMachine]:
    """The state machine over a world that is in place."""

    class Lives(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            wipe()
            world.reset()
            world.furnish()
            self.requests: list[Request] = []

        @initialize(events=st.sampled_from([250, 400]), files=st.lists(st.sampled_from([0, 90, 250]), min_size=2, max_size=4))
        def begin(self, events: int, files: list[int]) -> None:
            """Two requests whose DAGs run."""
            self.ask_for_a_generation(events, True)
            self.ask_for_a_reprocessing(files, {"events_per_job": 100})
            world.cycle()

        # --- what people do

        @precondition(lambda self: len(self.requests) < MOST_REQUESTS)
        @rule(events=st.sampled_from([100, 250, 400]), submit=st.sampled_from([True, True, False]))
        def ask_for_a_generation(self, events: int, submit: bool) -> None:
            self.requests.append(world.request(documents.generation(events), submit=submit))

        @precondition(lambda self: len(self.requests) < MOST_REQUESTS)
        @rule(
            files=st.lists(st.sampled_from([0, 1, 90, 250]), min_size=1, max_size=5),
            split=st.sampled_from([{"files_per_job": 1}, {"files_per_job": 3}, {"events_per_job": 100}, {"lumis_per_job": 7}]),
        )
        def ask_for_a_reprocessing(self, files: list[int], split: dict[str, int]) -> None:
            dataset = world.source(f"Source{len(world.sources)}", *files)
            self.requests.append(world.request(documents.reprocessing(dataset, **split)))

        @precondition(lambda self: self.requests)
        @rule(which=which, verb=st.sampled_from(sorted(VERBS)))
        def say(self, which: int, verb: str) -> None:
            ask(self.pick(which), verb)

        @rule()
        def retry_registrations(self) -> None:
            world.retry_effects()

        # --- WMS2's own processes

        @precondition(lambda self: self.requests)
        @rule()
        def cycle(self) -> None:
            world.cycle()
            world.clock.advance(60)

        @precondition(lambda self: world.schedd.live)
        @rule()
        def work_goes_on(self) -> None:
            """A unit of each DAG is done, a DAG without any left finishes; then a cycle."""
            for job in world.schedd.live:
                if job.open_nodes:
                    world.schedd.unit_done(job, job.open_nodes[0])
                else:
                    world.schedd.end(job, End.FINISHED)
            self.cycle()

        @precondition(lambda self: self.requests)
        @rule(which=which)
        def evaluate(self, which: int) -> None:
            world.evaluate(self.pick(which))

        @rule(limit=st.integers(1, 8))
        def run_effects(self, limit: int) -> None:
            world.effects(limit)

        @rule()
        def observe(self) -> None:
            world.observe()

        @rule(seconds=st.sampled_from([1, 61, 130, 301, 4000]))
        def time_passes(self, seconds: int) -> None:
            world.clock.advance(seconds)

        @rule(point=st.sampled_from(CRASH_POINTS))
        def the_next_process_there_dies(self, point: str) -> None:
            world.crash_at = point

        # --- DAGs

        @precondition(lambda self: world.schedd.live)
        @rule(which=which, account=st.sampled_from([Account.RIGHT, Account.RIGHT, *Account]))
        def a_unit_ends(self, which: int, account: Account) -> None:
            job = pick(world.schedd.live, which)
            if job.open_nodes:
                world.schedd.unit_done(job, job.open_nodes[0], account)

        @precondition(lambda self: world.schedd.live)
        @rule(which=which)
        def a_unit_fails(self, which: int) -> None:
            job = pick(world.schedd.live, which)
            if job.open_nodes:
                world.schedd.unit_failed(job, job.open_nodes[-1])

        @precondition(lambda self: world.schedd.live)
        @rule(which=which, end=st.sampled_from([End.FINISHED, End.FINISHED, *End]))
        def a_dag_ends(self, which: int, end: End) -> None:
            world.schedd.end(pick(world.schedd.live, which), end)

        # --- what goes wrong

        @rule(silent=st.booleans(), lags=st.booleans(), late=st.booleans())
        def the_schedd_is_in_a_state(self, silent: bool, lags: bool, late: bool) -> None:
            world.schedd.silent, world.schedd.history_lags, world.schedd.removes_late = silent, lags, late

        @rule()
        def the_schedd_works(self) -> None:
            world.schedd.work()

        @rule(service=st.sampled_from(sorted(world.scripts)), mode=st.sampled_from(Mode), times=st.integers(1, 3))
        def a_service_will_fail(self, service: str, mode: Mode, times: int) -> None:
            world.scripts[service].arm(mode, times)

        @precondition(lambda self: self.requests)
        @rule(
            service=st.sampled_from(sorted(world.scripts)),
            which=which,
            what=st.sampled_from([*sorted(VERBS), "evaluate", "effects", "replace", "overtake"]),
        )
        def meanwhile(self, service: str, which: int, what: str) -> None:
            """Something happens in the middle of the next call of a service."""
            request = self.pick(which)

            def others() -> None:
                if what in VERBS:
                    ask(request, what)
                if what == "replace":
                    world.clock.advance(40)  # the caller's lease runs out
                if what in ("evaluate", "replace"):
                    world.evaluate(request)
                if what == "effects":
                    world.effects(3)
                if what == "overtake":
                    world.clock.advance(301)  # the claims of a process that hangs run out
                    world.late += 3
                    world.effects(3)

            world.scripts[service].meanwhile = others

        @rule()
        def faults_stop(self) -> None:
            world.heal()

        # --- what must hold

        @invariant()
        def all_is_in_order(self) -> None:
            invariants.check(world)

        def teardown(self) -> None:
            for _ in range(MOST_RELEASES):
                come_to_rest(world)
                waiting = Request.objects.filter(status__in=(S.HELD, S.NEW)).exclude(hold_code=HoldCode.SHORT)
                for request in waiting:
                    ask(request, "release" if request.status == S.HELD else "submit")
                    assert request.status in (S.QUEUED, S.SUBMITTED), f"{request}: let go, and {request.status}"
                if not waiting:
                    break
            for request in Request.objects.filter(status=S.HELD):
                assert request.hold_code == HoldCode.SHORT, f"{request}: {request.hold_code}: {request.hold_reason}"

        def pick(self, which: int) -> Request:
            return pick(self.requests, which)

    return Lives


def pick(things: list[T], which: int) -> T:
    return things[which % len(things)]


def ask(request: Request, verb: str) -> None:
    """An operator's word; a refusal is an answer."""
    request.refresh_from_db()
    try:
        VERBS[verb](request)
    except InvalidTransition:
        request.refresh_from_db()


def come_to_rest(world: World) -> None:
    """All faults stop, whoever must repairs manifests and registrations; then nothing may stay in between."""
    world.heal()
    world.schedd.repair()
    for _ in range(MOST_CYCLES):
        world.retry_effects()
        for job in world.schedd.live:
            world.schedd.end(job, End.FINISHED)
        world.cycle()
        for request in Request.objects.filter(status=S.ACTIVE, alert_code="outcome_unknown"):
            ask(request, "hold")  # the runbook: nobody else will ever know
        invariants.check(world)
        world.clock.advance(600)
        if not Request.objects.exclude(status__in=AT_REST).exists():
            return
    left = Request.objects.exclude(status__in=AT_REST)
    raise AssertionError(f"not at rest: {[(r.request_name, r.status, r.stop_intent, r.waiting_for, r.last_error) for r in left]}")


def wipe() -> None:
    """An empty database."""
    tables = [
        model._meta.db_table for label in OURS for model in apps.get_app_config(label).get_models(include_auto_created=True)
    ]
    names = ", ".join(f'"{table}"' for table in tables)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")


def test_nothing_that_happens_to_requests_loses_work_or_leaves_them_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    run_state_machine_as_test(machine(world), settings=PROFILE)
