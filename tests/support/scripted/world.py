"""The scripted world as a whole: what stands outside, the clock, processes that come by, and how they die."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

import wms2.runtime.crash
import wms2.runtime.notify
from dags_app.planning import writer
from dags_app.services.activity import DagActivity
from outputs_app.checks.validation.catalogues import known_rules
from outputs_app.effects import executor
from outputs_app.effects.executor import effects_run_due
from outputs_app.models import Effect, EffectState
from outputs_app.services import effect_retry_now
from requests_app import lease
from requests_app.admission.queue import admit, admit_if_changed
from requests_app.lease import due_now
from requests_app.lifecycle import evaluator, watching
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.lifecycle.credentials import credentials_watch
from requests_app.lifecycle.draining import drains_go_on
from requests_app.lifecycle.leader import leading
from requests_app.models import EVALUATED, Request, RequestStatus
from requests_app.services import Received, request_import, restart
from requests_app.work import input_places, sizing
from sites_app.models import Schedd, ScheddState, Site, SiteRse
from sites_app.services import site_bans_expire, sites_drained
from sites_app.submit_roots import root_mark
from tests.support.limits import set_limits
from tests.support.rows import schedd_row
from tests.support.scripted import dagman
from tests.support.scripted.branching import Stand, once
from tests.support.scripted.catalogues import ScriptedConfigCache, ScriptedDbs, ScriptedRucio, Source, SourceFile
from tests.support.scripted.clock import Clock
from tests.support.scripted.documents import SITES
from tests.support.scripted.faults import PowerCut, Script
from tests.support.scripted.operation import Tally
from tests.support.scripted.schedd import OTHER, Job, ScriptedSchedd
from wms2.adapters import factory
from wms2.adapters.caller import LEASES_LOST
from wms2.conf import Limits, conf
from wms2.errors import LeaseLost
from wms2.metrics.series import FORGOTTEN_TOTAL
from wms2.runtime import clock, passes
from wms2.runtime.due import mark_due

INSTANCE = "scripted"
#: Until a process that was cut off from the database reaches it again; by then its leases have run out.
_CUT_OFF_SECONDS = 61.0
#: Small, so that few events make several units, blocks, rounds and rescues.
SETTINGS = {
    "INSTANCE": INSTANCE,
    "ENVIRONMENT": "test",
    "JOBS_PER_WORK_UNIT": "1",
    "MAX_WORK_UNITS_PER_DAG": "3",
    "BLOCK_TARGET_BYTES": "1700000",
    "ERROR_HOLD_THRESHOLD": "0.6",
    "ERROR_MAX_RESCUE_ATTEMPTS": "1",
    "EFFECT_BACKOFF_SECONDS": "60,300",
    "EFFECT_MAX_RETRY_SECONDS": "7200",
    "MAX_ACTIVE_DAGS": "2",
    "CLEANER_ENABLED": "false",
    "STORAGE_CHECKS_ENABLED": "false",
    "UNREADABLE_APART_SECONDS": "1200",
}
_CONSTANTS: dict[str, Any] = {"MAX_WORK_UNITS_PER_DAG": sizing, "MAX_VERSIONS": restart}
#: Of a world's attributes.
_NOT_OUTSIDE = {"clock", "root", "patch", "own_patches", "stand"}
_SPACE = {"REQMGR2_URL": "http://scripted", "DBS_READER_URL": "http://scripted", "DBS_WRITER_URL": "http://scripted",
          "CRIC_URL": "http://scripted", "RUCIO_HOME": "/scripted", "RUCIO_ACCOUNT": "wms2", "SCHEDD_NAME": "schedd@test",
          "COLLECTOR": "scripted:1"}  # fmt: skip


class World:
    """Everything outside WMS2. Make one for a test; it puts itself in place."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, **settings: str) -> None:
        """``settings``: settings, limits and constants, in capitals, without ``WMS2_``."""
        given = SETTINGS | settings
        set_limits(patch, **{name: json.loads(given.pop(name.upper())) for name in Limits.model_fields if name.upper() in given})
        for name in given.keys() & _CONSTANTS.keys():
            patch.setattr(_CONSTANTS[name], name, int(given[name]))
            patch.setenv(f"WMS2_SCRIPTED_{name}", given.pop(name))  # another world, for ``branching``
        for name, value in {**_SPACE, **given, "STATE_DIR": str(root), "SUBMIT_ROOT": str(root / "submit")}.items():
            patch.setenv(f"WMS2_{name}", value)
        conf.cache_clear()
        #: Cycles from one look for what was forgotten to the next: it costs as much as a cycle. What is forgotten stays so.
        self.sweep_every = 3
        self.clock = Clock()
        self.clock.install(patch)
        patch.setattr(input_places, "INPUT_LOCATIONS_SECONDS", 600.0)
        self.tally = Tally()
        self.root = root
        self.patch = patch
        self.reset()
        self._install(patch)
        #: what comes after these is a test's own
        self.own_patches = len(patch._setattr)

    def reset(self) -> None:
        """A world in which nothing has happened."""
        self.clock.ahead *= 0
        #: where it stands, while nothing has changed there
        self.stand: Stand | None = None
        known_rules.cache_clear()  # of another world with the same names
        self.sources: dict[str, Source] = {}
        dagman.sources = self.sources
        self.errors: list[str] = []
        self.hints: list[tuple[str, tuple[Any, ...]]] = []
        self.checked: dict[Any, Any] = {}  # what ``invariants`` has looked at
        self.bad_files: set[str] = set()  # input files that jobs gave up over
        self.moves = DagActivity()
        self.deaths = 0
        self.cycles = 0
        self.cut_off: ExitStack | None = None
        self.running: Effect | None = None
        self.crash_at = ""
        self.observing = 0  # processes within ``observe``
        self.crash_mark = ""  # a file; where it is set, each point of ``crash_at`` kills once
        self.schedd = ScriptedSchedd(Script("htcondor", refuses=frozenset({"submit_dag", "remove", "remove_all"})), INSTANCE)
        self.dbs = ScriptedDbs(Script("dbs"), self.sources)
        self.rucio = ScriptedRucio(Script("rucio"), self.sources)
        self.configcache = ScriptedConfigCache(Script("configcache"))
        self.directories = Script("directory")  # what is written into DAGs' directories for one submission
        for script in self.scripts.values():
            script.judge = self._judge

    def _install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(factory, "htcondor", lambda name, collector, tokens="", owner="": self.schedd.named(name, owner))
        patch.setattr(factory, "dbs", lambda: self.dbs)
        patch.setattr(factory, "rucio", lambda: self.rucio)
        patch.setattr(factory, "configcache", lambda: self.configcache)
        # what is scripted to happen during a question looks at the test's own database session
        patch.setattr(watching, "side_by_side", lambda questions, meanwhile: ((key, ask()) for key, ask in questions.items()))
        patch.setattr(watching, "schedds_to_watch", lambda: list(Schedd.objects.filter(dags__isnull=False).distinct()))
        patch.setattr(wms2.runtime.notify, "_send", lambda name, args: self.hints.append((name, args)))
        patch.setattr(
            wms2.runtime.crash, "os", SimpleNamespace(environ=_CrashAt(self), getpid=os.getpid, kill=_die, fsync=os.fsync)
        )
        patch.setattr(writer, "sync_directory", lambda path: None)  # power cuts of the disk are not scripted, and it is slow
        patch.setattr(writer, "_locked", self._writing(writer._locked))
        for module in (evaluator, passes):
            patch.setattr(module.log, "exception", self._remember, raising=False)
        patch.setattr(executor, "_run", self._running(executor._run))

    def _running(self, run: Callable[[Effect], None]) -> Callable[[Effect], None]:
        def one(effect: Effect) -> None:
            before, self.running = self.running, effect
            try:
                run(effect)
            finally:
                self.running = before

        return one

    def _writing(self, locked: Callable[[Path], AbstractContextManager[None]]) -> Callable[[Path], AbstractContextManager[None]]:
        """No lease is looked at before a write: who has waited for the directory's lock writes."""

        @contextmanager
        def one(path: Path) -> Iterator[None]:
            self.directories.before()
            with locked(path):
                yield
            self.directories.after()

        return one

    def _judge(self, call: str) -> None:
        """Whether an effect may make a call: its claim is there, and has not run out."""
        if self.running is None or not LEASES_LOST.get():  # no effect's, or it undoes what came too late
            return
        wrappers, connection.execute_wrappers = connection.execute_wrappers, []
        try:
            state, epoch, until = Effect.objects.values_list("state", "claim_epoch", "claim_expires_at").get(pk=self.running.pk)
        finally:
            connection.execute_wrappers = wrappers
        if (state, epoch) != (EffectState.CLAIMED, self.running.claim_epoch) or until is None or until < self.clock.now():
            self.errors.append(f"{call} is called under a claim of {self.running.key} that is over: it is {state} by now")

    def _remember(self, event: str, **_: object) -> None:
        if self.cut_off is not None:
            return
        self.errors.append(f"{event}\n{traceback.format_exc()}")

    @property
    def scripts(self) -> dict[str, Script]:
        """By service."""
        held = (self.schedd.script, self.dbs.script, self.rucio.script, self.configcache.script, self.directories)
        return {script.service: script for script in held}

    def outside(self) -> dict[str, Any]:
        """All that is outside of WMS2."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_OUTSIDE}

    def outside_is(self, outside: dict[str, Any]) -> None:
        """From now on it is this."""
        vars(self).update(outside)
        known_rules.cache_clear()
        dagman.sources = self.sources

    # --- what an installation has

    @once
    def furnish(self) -> None:
        """Sites and the schedd, as ``wms2_init`` leaves them."""
        conf().submit_root.mkdir(parents=True, exist_ok=True)
        root_mark(conf().submit_root)
        schedd_row(pool="scripted", submit_root=str(conf().submit_root))
        for name, rse in SITES.items():
            SiteRse.objects.create(site=Site.objects.create(name=name), rse=rse, seen_at=timezone.now())

    def furnish_another(self) -> None:
        """A second schedd of the pool, which sees the same directories and is not in service yet."""
        first = Schedd.objects.get()
        Schedd.objects.create(
            name=OTHER, pool=first.pool, state=ScheddState.DISABLED, submit_root=first.submit_root, onboarded_at=clock.now()
        )

    def source(self, name: str, *file_events: int) -> str:
        """An input dataset of files with so many events, three to a block, the blocks at the sites in turn."""
        dataset = f"/{name}/Era-v1/RAW"
        source, lumi = Source(), 1
        for number, events in enumerate(file_events):
            block = f"{dataset}#{number // 3}"
            file = SourceFile(f"/store/data/{name}/{number:03d}.root", events, lumi)
            lumi += len(file.lumis)
            source.blocks.setdefault(block, []).append(file)
            source.locations[block] = (list(SITES.values())[number // 3 % len(SITES)],)
        self.sources[dataset] = source
        return dataset

    def request(self, document: dict[str, Any], *, submit: bool = True) -> Request:
        """Take a document in."""
        return request_import(document=document, request_name=None, actor="tester", asked=Received(submit=submit))

    # --- processes that come by; each may die

    @contextmanager
    def process(self) -> Iterator[None]:
        """What runs inside may die without taking the test along, and works under no lease of whoever is stopped meanwhile. Where
        it is cut off from the database, its task fails there."""
        outside, cut_off, running = LEASES_LOST.set(()), self.cut_off, self.running
        self.cut_off = self.running = None
        try:
            yield
        except PowerCut:
            self.deaths += 1
            if not self.crash_mark:
                self.crash_at = ""
        except (OperationalError, InterfaceError):
            if self.cut_off is None:
                raise
            self.deaths += 1  # what it was answered it could not record
        except LeaseLost:
            self.tally.reached["lease lost"] += 1
        finally:
            if self.cut_off is not None:
                self.cut_off.close()
                self.clock.advance(_CUT_OFF_SECONDS)
            self.cut_off, self.running = cut_off, running
            LEASES_LOST.reset(outside)

    def cut_off_from_the_database(self) -> None:
        """The present process, until it ends; services go on to answer it."""
        self.cut_off = ExitStack()
        self.cut_off.enter_context(connection.execute_wrapper(_no_answer))

    def evaluate(self, request: Request, *, steps: int = evaluator.MAX_STEPS) -> None:
        """The task ``evaluate_request``, and a poll that has it go on where it is admitted; with fewer ``steps`` its process ends
        after so many statuses.
        """
        whole = steps == evaluator.MAX_STEPS
        with self.process(), self.patch.context() as patch:
            patch.setattr(evaluator, "MAX_STEPS", steps)
            evaluator.evaluate_one(request.pk)
            if whole and admit_if_changed():
                evaluator.evaluate_one(request.pk)

    def observe(self) -> None:
        """The watching part of the cycle; left to the process that leads and is stopped, if this is what happens meanwhile."""
        with self.process(), leading() as leadership:
            if leadership is None:
                assert self.observing, "nobody else leads"
                return
            self.observing += 1
            try:
                credentials_watch(leadership)
                watching.schedds_watch(leadership)
            finally:
                self.observing -= 1

    def effects(self, limit: int = 100) -> None:
        """The task ``run_effects``."""
        with self.process():
            effects_run_due(owner="scripted", limit=limit)

    def cycle(self) -> None:
        """One whole cycle."""
        sites_drained(transaction.atomic)
        site_bans_expire(transaction.atomic)
        self.observe()
        with self.process():
            drains_go_on(transaction.atomic)
        self._poll()
        self._evaluate(self.due())
        self.cycles += 1
        if self.undisturbed and self.cycles % self.sweep_every == 0:
            self._sweep()
        self.effects()
        if Request.objects.filter(status__in=(RequestStatus.REMOVING_FILES, RequestStatus.CLEANING)).exists():
            self.clean_sites()

    def clean_sites(self) -> None:
        """The task ``remove_leftovers``."""
        with self.process():
            leftovers_remove()

    def _poll(self) -> None:
        """What a poll finds before it hands out evaluations."""
        with self.process():
            for request_id, why in self.moves.check():
                mark_due([request_id], why)
            admit_if_changed()

    def due(self) -> list[Request]:
        """What a cycle's time from now makes due, and what was woken."""
        with self._later(conf().cycle_seconds):
            return list(Request.objects.filter(pk__in=due_now(1000)).order_by("created_at"))

    @contextmanager
    def _later(self, seconds: float) -> Iterator[None]:
        self.clock.advance(seconds)
        try:
            yield
        finally:
            self.clock.advance(-seconds)

    def _evaluate(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.evaluate(request)

    def _sweep(self) -> None:
        """Whatever is not due has nothing to do: else it would stand still, and nobody would know."""
        self._poll()
        before = FORGOTTEN_TOTAL._value.get()
        admit()
        assert FORGOTTEN_TOTAL._value.get() == before, "nothing woke admission, and it had something to do"
        due = {request.pk for request in self.due()}
        for request in Request.objects.filter(status__in=EVALUATED).exclude(pk__in=due).order_by("created_at"):
            with lease.evaluating(request.pk, owner="sweep") as evaluation:
                assert evaluation is not None
                evaluator.check_request(evaluation)
                assert not evaluation.written, f"{request.request_name} ({request.status}) was forgotten: {evaluation.written}"

    @property
    def undisturbed(self) -> bool:
        """Whether nothing is about to go wrong."""
        waiting = any(script.waiting or script.meanwhile or script.afterwards for script in self.scripts.values())
        return not (waiting or self.crash_at or self.schedd.silent)

    # --- time and rest

    def heal(self) -> None:
        """All faults stop."""
        for script in self.scripts.values():
            script.heal()
        self.schedd.silent = self.schedd.history_lags = self.schedd.removes_late = False
        self.crash_at = ""

    def retry_effects(self) -> None:
        """An operator tries everything refused or dead again."""
        for effect in Effect.objects.filter(state__in=(EffectState.REFUSED, EffectState.DEAD)):
            effect_retry_now(effect=effect, actor="olga", reason="tried again")

    def touch(self, *paths: Path, ago: float = 0.0) -> None:
        """Written now, by this world's clock, or so many seconds ago."""
        at = self.clock.now().timestamp() - ago
        for path in paths:
            os.utime(path, (at, at))

    def job_of(self, request: Request) -> Job:
        """The request's DAGMan job in the queue."""
        (job,) = [job for job in self.schedd.live if job.request_name == request.request_name]
        return job


def _no_answer(*_: Any) -> None:
    raise OperationalError("scripted: the database does not answer")


class _CrashAt(dict[str, str]):
    """The environment that ``crash_point`` reads."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def get(self, name: str, default: Any = None) -> Any:
        return {"WMS2_CRASH_AT": self._world.crash_at, "WMS2_CRASH_MARK": self._world.crash_mark}.get(name, default)


def _die(pid: int, number: int) -> None:
    assert number == signal.SIGKILL
    raise PowerCut
