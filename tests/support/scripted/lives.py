"""Requests live through anything: the rules of the stateful test. What people do, what processes, DAGs and services do.

After every step ``invariants`` and ``aftermath`` must hold. At the end all faults stop, an operator does what the runbook says,
and everything must come to rest; held requests go on when they are released.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dags_app.models import DAG
from outputs_app.models import SETTLED_EFFECT, Effect, EffectKind
from outputs_app.selectors import STUCK
from requests_app.models import TERMINAL, Request, RequestStatus
from requests_app.services.intake import Received, request_receive
from sites_app.models import Site
from tests.support.scripted import actions, aftermath, documents, failures, invariants, losses
from tests.support.scripted.branching import wipe
from tests.support.scripted.dagman import Account
from tests.support.scripted.faults import Mode
from tests.support.scripted.later_keys import later_keys_of
from tests.support.scripted.operation import REFUSALS, Operation, ask
from tests.support.scripted.rest import bring_to_rest
from tests.support.scripted.scenes import SCENES
from tests.support.scripted.schedd import End, Job
from tests.support.scripted.world import World
from wms2.errors import ServiceError

S = RequestStatus
MOST_REQUESTS = 3
#: Longer than any lease lasts.
PAUSE_SECONDS = 301
#: Idle jobs, more than any budget of them.
FLOOD = 10**6
CRASH_POINTS = (
    "import.claimed", "import.called", "import.recorded", "plan.claimed", "plan.called", "plan.recorded",
    "submit.claimed", "submit.called", "submit.recorded", "poll.called", "poll.recorded", "register.claimed",
    "register.recorded", "stop.claimed", "stop.called",
    *(f"{kind}.{point}" for kind in EffectKind.values for point in ("claimed", "called", "recorded")),
)  # fmt: skip
SERVICES = ("configcache", "dbs", "htcondor", "rucio")
#: Before and after what a worker may be stopped: a call of a service, a write into a DAG's directory.
PAUSES = (*SERVICES, "directory")
T = TypeVar("T")
which = st.integers(0, 10)
twice = st.sampled_from([False, False, True])
words = st.lists(st.tuples(which, st.sampled_from(sorted(actions.ON_REQUESTS)), twice, st.booleans()), min_size=1, max_size=4)
SPLITS = [{"files_per_job": 1}, {"files_per_job": 3}, {"events_per_job": 100}, {"lumis_per_job": 7}]


def fresh(world: World) -> None:
    """Nothing has happened yet, in the database neither."""
    wipe()
    world.reset()
    world.furnish()
    world.furnish_another()


class Lives(RuleBasedStateMachine):
    """The rules, without a world."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        fresh(self.world)

    @initialize(scene=st.sampled_from(sorted(SCENES)), words=words)
    def begin(self, scene: str, words: list[tuple[int, str, bool, bool]]) -> None:
        event(f"begins with: {scene}")
        SCENES[scene](self.world)
        self.all_is_in_order()  # a hold is judged by what is there before anybody acts on it
        self._say(words)

    # --- what people do

    @precondition(lambda self: self.has_room)
    @rule(events=st.sampled_from([100, 250, 400]), submit=st.sampled_from([True, True, False]))
    def ask_for_a_generation(self, events: int, submit: bool) -> None:
        with self.world.process():
            self.world.request(documents.generation(events), submit=submit)

    @precondition(lambda self: self.has_room)
    @rule(files=st.lists(st.sampled_from([0, 1, 90, 250]), min_size=1, max_size=5), split=st.sampled_from(SPLITS))
    def ask_for_a_reprocessing(self, files: list[int], split: dict[str, int]) -> None:
        dataset = self.world.source(f"Source{len(self.world.sources)}", *files)
        received = Received(documents.reprocessing(dataset, **split), None)
        with self.world.process():
            try:
                request_receive(received=received, actor="tester")
            except ServiceError:
                self.world.tally.refused["request_receive"] += 1
            else:
                self.world.tally.accepted["request_receive"] += 1

    @precondition(lambda self: self.any_request)
    @rule(
        words=st.lists(
            st.tuples(which, st.sampled_from(sorted(actions.ON_REQUESTS)), twice, st.booleans()), min_size=1, max_size=4
        )
    )
    def say(self, words: list[tuple[int, str, bool, bool]]) -> None:
        """Words on any request, or on one that they are meant for."""
        self._say(words)

    def _say(self, words: list[tuple[int, str, bool, bool]]) -> None:
        for which, action, twice, apt in words:
            said = actions.ON_REQUESTS[action]
            meant = [request for request in self.requests if said.why_not and not said.why_not(request)]
            self._ask(said, pick(meant if apt and meant else self.requests, which), twice)

    @precondition(lambda self: Request.objects.filter(status=S.HELD).exists())
    @rule(which=which, action=st.sampled_from(sorted(v for v in actions.ON_REQUESTS if v.startswith("release"))), twice=twice)
    def let_go(self, which: int, action: str, twice: bool) -> None:
        held = list(Request.objects.filter(status=S.HELD).order_by("created_at"))
        self._ask(actions.ON_REQUESTS[action], pick(held, which), twice)

    @precondition(lambda self: self.world.schedd.jobs)
    @rule(which=which, action=st.sampled_from(sorted(actions.ON_DAGS)), twice=twice)
    def say_of_a_dag(self, which: int, action: str, twice: bool) -> None:
        dags = [dag for request in self.requests for dag in actions.dags_of(request)[:2]]
        if dags:
            self.world.schedd.script.meanwhile = None  # it would happen inside the operation, and be taken for its work
            with self.world.process():
                self._ask(actions.ON_DAGS[action], pick(dags, which), twice)

    @rule(words=st.lists(st.tuples(which, st.sampled_from(sorted(actions.ON_SITES)), twice), min_size=1, max_size=4))
    def say_of_sites(self, words: list[tuple[int, str, bool]]) -> None:
        for which, action, twice in words:
            kept = aftermath.guard_kept()
            done = self._ask(actions.ON_SITES[action], pick(list(Site.objects.order_by("name")), which), twice)
            if done and action == "site ban" and kept:
                assert aftermath.guard_kept(), "more than half of the sites were banned and nobody insisted"

    @rule(
        action=st.sampled_from([*sorted(actions.ON_SCHEDDS), "schedd enable", "schedd enable"]), other=st.booleans(), twice=twice
    )
    def say_of_a_schedd(self, action: str, other: bool, twice: bool) -> None:
        self._ask(actions.ON_SCHEDDS[action], actions.other_schedd() if other else actions.schedd_of_the_world(), twice)

    @precondition(lambda self: self.world.schedd.jobs)
    @rule(writes=st.sampled_from([False, False, True]), twice=twice)
    def give_up_what_is_lost(self, writes: bool, twice: bool) -> None:
        """An operator's confirmation that the queue is lost; with ``writes`` the DAGMans that live have just written."""
        if writes:
            losses.dagmans_write(self.world)
        self._ask(actions.SCHEDD_LOST, actions.schedd_of_the_world(), twice)

    @rule(words=st.lists(st.sampled_from(actions.RULE_WORDS), min_size=2, max_size=4))
    def say_of_a_failure_rule(self, words: list[str]) -> None:
        for word in words:
            try:
                self.world.tally.accepted[actions.rule_say(word)] += 1
            except REFUSALS:
                self.world.tally.refused[f"failure rule: {word}"] += 1

    @precondition(lambda self: Effect.objects.exclude(state__in=SETTLED_EFFECT).exists())
    @rule(which=which, twice=twice)
    def retry_a_registration(self, which: int, twice: bool) -> None:
        stuck = list(Effect.objects.filter(state__in=STUCK).order_by("id")[:20])
        left = list(Effect.objects.exclude(state__in=SETTLED_EFFECT).order_by("id")[:20])
        self._ask(actions.EFFECT_RETRY, pick(stuck or left, which), twice)

    @precondition(lambda self: Effect.objects.filter(state__in=STUCK).exists())
    @rule(which=which, twice=twice)
    def discard_a_registration(self, which: int, twice: bool) -> None:
        stuck = list(Effect.objects.filter(state__in=STUCK).order_by("id")[:20])
        self._ask(actions.EFFECT_DISCARD, pick(stuck, which), twice)

    # --- WMS2's own processes

    @rule()
    def cycle(self) -> None:
        self.world.cycle()
        self.world.clock.advance(60)

    @precondition(lambda self: self.world.undisturbed)
    @rule()
    def a_quiet_cycle(self) -> None:
        """The jobs in the queue then have their requests' priorities."""
        self.world.cycle()
        wanted = {request.request_name: request.priority for request in Request.objects.filter(status=S.ACTIVE)}
        jobs = [job for job in losses.followed(self.world) if job.request_name in wanted]
        assert all(job.priority == wanted[job.request_name] for job in jobs), f"{wanted}: {[j.priority for j in jobs]}"

    @precondition(lambda self: self.world.schedd.live)
    @rule()
    def work_goes_on(self) -> None:
        """A unit of each DAG is done, one without any left finishes, one that is halted ends; then a cycle."""
        for job in self.running:
            if job.open_nodes:
                self._done(job, job.open_nodes[0])
                if job.halted:
                    self.world.schedd.end(job, End.DRAINED)
            else:
                self.world.schedd.end(job, End.FINISHED)
        self.cycle()

    @precondition(lambda self: self.any_request)
    @rule(which=which, steps=st.sampled_from([1, 1, 2, 8]))
    def evaluate(self, which: int, steps: int) -> None:
        self.world.evaluate(pick(self.requests, which), steps=steps)

    @rule(limit=st.integers(1, 8))
    def run_effects(self, limit: int) -> None:
        self.world.effects(limit)

    @rule()
    def observe(self) -> None:
        self.world.observe()

    @rule(seconds=st.sampled_from([1, 61, 130, 301, 4000, 8000]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule(point=st.sampled_from(CRASH_POINTS))
    def the_next_process_there_dies(self, point: str) -> None:
        self.world.crash_at = point

    # --- DAGs

    @precondition(lambda self: self.running)
    @rule(which=which, account=st.sampled_from([Account.RIGHT, Account.RIGHT, *Account]))
    def a_unit_ends(self, which: int, account: Account) -> None:
        job = pick(self.running, which)
        if job.open_nodes:
            self._done(job, job.open_nodes[0], account)

    @precondition(lambda self: self.running)
    @rule(which=which, every=st.booleans())
    def units_fail(self, which: int, every: bool) -> None:
        job = pick(self.running, which)
        for unit in job.open_nodes[0 if every else -1 :]:
            self.world.schedd.unit_failed(job, unit)

    @precondition(lambda self: self.running)
    @rule(which=which)
    def a_unit_gives_up_over_a_file(self, which: int) -> None:
        job = pick(self.running, which)
        files = failures.inputs_of(job, job.open_nodes[-1]) if job.open_nodes else []
        if files:
            site = "T1_US_FNAL" if which % 2 else "T2_CH_CERN"
            failures.file_is_bad(job, job.open_nodes[-1], files[0], site=site, at=self.world.clock.now())
            self.world.bad_files.add(files[0])
            self.world.schedd.unit_failed(job, job.open_nodes[-1])

    @precondition(lambda self: self.running)
    @rule(which=which, site=st.sampled_from(sorted(documents.SITES)), attempts=st.integers(1, 4))
    def a_site_fails(self, which: int, site: str, attempts: int) -> None:
        failures.site_fails(pick(self.running, which), site, attempts)

    @precondition(lambda self: self.world.schedd.live)
    @rule(which=which, end=st.sampled_from([End.FINISHED, End.FINISHED, *End]))
    def a_dag_ends(self, which: int, end: End) -> None:
        job = pick(self.world.schedd.live, which)
        event(f"a DAG ends: {end.name}")
        self.world.tally.reached[f"end:{end.name}"] += 1
        self.world.schedd.end(job, end)

    # --- what goes wrong

    @rule(silent=st.booleans(), lags=st.booleans(), late=st.booleans())
    def the_schedd_is_in_a_state(self, silent: bool, lags: bool, late: bool) -> None:
        self.world.schedd.silent, self.world.schedd.history_lags, self.world.schedd.removes_late = silent, lags, late

    @precondition(lambda self: self.world.schedd.live)
    @rule(silent=st.booleans(), noticed=st.booleans())
    def the_queue_is_gone(self, silent: bool, noticed: bool) -> None:
        """The schedd comes back without its queue, or is silent for long; ``noticed``: WMS2 has come by before and after."""
        if silent:
            self.world.schedd.silent = True
        else:
            self.world.schedd.lose_queue()
        if noticed:
            self.cycle()
            self.world.clock.advance(losses.WINDOW)
            self.cycle()

    @precondition(lambda self: self.world.schedd.lost and not self.world.schedd.live)
    @rule()
    def the_queue_is_put_back(self) -> None:
        self.world.schedd.put_back_queue()

    @rule()
    def the_schedd_works(self) -> None:
        self.world.schedd.work()

    @rule(
        service=st.sampled_from(["htcondor", "dbs", "rucio", "configcache"]), mode=st.sampled_from(Mode), times=st.integers(1, 3)
    )
    def a_service_will_fail(self, service: str, mode: Mode, times: int) -> None:
        self.world.scripts[service].arm(mode, times)

    @precondition(lambda self: self.any_request)
    @rule(
        service=st.sampled_from(PAUSES),
        which=which,
        what=st.sampled_from([*sorted(actions.ON_REQUESTS), "evaluate", "effects", "replace", "overtake"]),
    )
    def meanwhile(self, service: str, which: int, what: str) -> None:
        """Something happens while a process is about to make its next call of a service, or to write into a DAG's directory."""
        request, world = pick(self.requests, which), self.world

        def others() -> None:
            if what in actions.ON_REQUESTS:
                self._ask(actions.ON_REQUESTS[what], request)
            if what == "replace":
                world.clock.advance(40)  # the caller's lease runs out
            if what in ("evaluate", "replace"):
                world.evaluate(request)
            if what == "effects":
                world.effects(3)
            if what == "overtake":
                world.clock.advance(PAUSE_SECONDS)  # the claims of a process that hangs run out
                world.effects(3)

        world.scripts[service].meanwhile = others

    @precondition(lambda self: self.any_request)
    @rule(
        service=st.sampled_from(PAUSES),
        which=which,
        action=st.sampled_from(["clean", "invalidate", *sorted(actions.ON_REQUESTS)]),
        cycles=st.sampled_from([0, 1, 6, 12]),
        answered=st.booleans(),
        seconds=st.sampled_from([0, PAUSE_SECONDS, PAUSE_SECONDS]),
    )
    def a_worker_is_paused(self, service: str, which: int, action: str, cycles: int, answered: bool, seconds: int) -> None:
        """Before its next call of a service or write into a DAG's directory, or when that is done and not recorded, until its
        leases have run out or, with 0 ``seconds``, for as long as they last; others act meanwhile, and DAGs go on."""
        request = pick(self.requests, which)

        def others() -> None:
            if answered:  # the claim still runs at the operation, and is waited for
                self._ask(actions.ON_REQUESTS[action], request)
            self.world.clock.advance(seconds)
            if not answered:
                self._ask(actions.ON_REQUESTS[action], request)
            for number in range(cycles):
                if seconds:
                    (self.cycle if number else self.work_goes_on)()
                    self.world.clock.advance(seconds)
                else:
                    self.world.cycle()
            self.world.deaths += answered  # it was answered and cannot record that any more

        setattr(self.world.scripts[service], "afterwards" if answered else "meanwhile", others)

    @rule(service=st.sampled_from(SERVICES), seconds=st.sampled_from([5, PAUSE_SECONDS]), cycles=st.sampled_from([0, 1, 3]))
    def a_worker_is_cut_off_from_the_database(self, service: str, seconds: int, cycles: int) -> None:
        """From before its next call of a service on, for longer than its leases last or not; services answer it."""

        def others() -> None:
            self.world.clock.advance(seconds)
            if seconds == PAUSE_SECONDS:
                for _ in range(cycles):
                    self.world.cycle()
            self.world.cut_off_from_the_database()

        self.world.scripts[service].meanwhile = others

    @precondition(lambda self: DAG.objects.exists())
    @rule(which=which, idle_jobs=st.sampled_from([0, 0, FLOOD]), asked=st.booleans())
    def a_stranger_has_our_stamps(self, which: int, idle_jobs: int, asked: bool) -> None:
        """Another owner's DAGMan, or node jobs, in the queue, with the stamps of a DAG that there is; ``asked``: as the schedd is
        asked next, with those of the DAG that was rendered last.
        """

        def comes() -> None:
            dags = list(DAG.objects.order_by("created_at"))
            dag = dags[-1] if asked else pick(dags, which)
            stamps = (str(dag.directory_id), dag.fence) if idle_jobs else (str(dag.pk), 99)
            self.world.schedd.stranger(stamps[0], fence=stamps[1], idle_jobs=idle_jobs)
            self.world.tally.reached["stranger"] += 1

        if asked:
            self.world.schedd.script.meanwhile = comes
        else:
            comes()

    @precondition(lambda self: self.any_request)
    @rule(which=which)
    def a_later_release_has_written(self, which: int) -> None:
        """Into the JSON columns of a request's rows, keys that this release does not know."""
        self.world.tally.reached["later keys"] += bool(later_keys_of(pick(self.requests, which)))

    @rule()
    def faults_stop(self) -> None:
        self.world.heal()

    # --- what must hold

    @invariant()
    def all_is_in_order(self) -> None:
        self.world.tally.steps += 1
        invariants.check(self.world)
        aftermath.check(self.world)
        touched = [each.touched for each in self.world.schedd.strangers if each.touched]
        assert not touched, f"done to jobs of another owner: {touched}"
        counted = DAG.objects.filter(jobs__roles__processing__idle__gte=FLOOD) if self.world.schedd.strangers else ()
        assert not counted, f"jobs of another owner are counted as those of {list(counted)}"

    def teardown(self) -> None:
        bring_to_rest(self.world)
        self.world.tally.collect()

    # --- what the rules ask for

    @property
    def requests(self) -> list[Request]:
        """All there are, successors too."""
        return list(Request.objects.order_by("created_at"))

    @property
    def any_request(self) -> bool:
        """Whether there is one."""
        return Request.objects.exists()

    @property
    def has_room(self) -> bool:
        """Whether one more is still quick enough."""
        return Request.objects.exclude(status__in=(*TERMINAL, S.COMPLETED)).count() < MOST_REQUESTS

    @property
    def running(self) -> list[Job]:
        """Jobs that make progress."""
        return [job for job in self.world.schedd.live if not job.held_because]

    def _ask(self, action: Operation, target: object, twice: bool = False) -> bool:
        if action.name.startswith("restart") and not self.has_room:
            return False
        done = False
        with self.world.process():
            done = ask(self.world.tally, action, target, twice=twice)
        event(f"{action.name}: {'accepted' if done else 'refused'}")
        return done

    def _done(self, job: Job, unit: str, account: Account = Account.RIGHT) -> None:
        self.world.schedd.unit_done(job, unit, account)


def pick(things: list[T], which: int) -> T:
    """One of them, always the same for the same number."""
    return things[which % len(things)]
