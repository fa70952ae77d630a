"""The test stack as tests see it: is it there, what does its simulated world know, and workers as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from django.db import connection

from deploy.stack.environment import with_limits
from tests.support import warm
from tests.support.places import ROOT
from tests.support.side_by_side import PATIENCE

NEEDED = ("WMS2_COLLECTOR", "CONDOR_CONFIG", "WMS2_RUCIO_HOME", "WMS2_REQMGR2_URL", "WMS2_SUBMIT_ROOT")
#: Quick and strict, so that a test sees in seconds what an operator sees in minutes.
SETTINGS = {
    "WMS2_CYCLE_SECONDS": "4",  # every second poll: a cycle costs as much CPU as ten polls
    "WMS2_SWEEP_SECONDS": "8",  # what nothing wakes is looked at often, and must have nothing to do
    "WMS2_LEASE_SECONDS": "3",
    "WMS2_SUBMIT_TIMEOUT_SECONDS": "20",
    "WMS2_SUBMIT_UNKNOWN_GRACE_SECONDS": "20",
    "WMS2_EFFECT_LEASE_SECONDS": "5",
    "WMS2_EFFECT_BACKOFF_SECONDS": "1,2,5",
}
LIMITS = {"retry_after_failure_seconds": 1, "retry_after_failure_max_seconds": 4, "cooloff_base_seconds": 1}


def missing() -> str:
    """Why the stack cannot be used; empty when it can."""
    absent = [name for name in NEEDED if not os.environ.get(name)]
    return f"no test stack ({', '.join(absent)} not set); run with `make test`" if absent else ""


def small_request(events: int = 40, per_job: int = 20, steps: int = 1) -> dict[str, Any]:
    """The demo's chain from scratch with few events, under names of its own: its first step, which has one output, or more."""
    document: dict[str, Any] = json.loads((ROOT / "deploy/demo/requests/stepchain_scratch.json").read_text())
    tag = uuid.uuid4().hex[:8]
    create, assign = document["createRequest"], document["assignRequest"]
    for number in range(steps + 1, create["StepChain"] + 1):
        name = create.pop(f"Step{number}")["StepName"]
        del assign["AcquisitionEra"][name], assign["ProcessingString"][name]
    create |= {"RequestString": f"test_{tag}", "StepChain": steps}
    create["Step1"] |= {"RequestNumEvents": events, "EventsPerJob": per_job}
    create["Step1"]["PrimaryDataset"] = f"TestPrimary{tag}"
    assign["ProcessingString"] = dict.fromkeys(assign["ProcessingString"], f"Test{tag}")
    return document


class Worker:
    """A process of WMS2 on the test's database: by default ``manage.py lifecycle_tick --loop``."""

    def __init__(self, *arguments: str, **settings: Any) -> None:
        """``settings``: environment variables, in capitals, and limits."""
        self.arguments = arguments or ("manage.py", "lifecycle_tick", "--loop")
        limits = {name: value for name, value in settings.items() if name.islower()}
        environment = {name: str(value) for name, value in settings.items() if name not in limits}
        self.environment = {**os.environ, **SETTINGS, "WMS2_DATABASE_URL": database_url(), **environment}
        self.environment |= with_limits(self.environment, **LIMITS | limits)
        self.log = Path(os.environ["WMS2_STATE_DIR"]) / "logs" / f"test-worker-{uuid.uuid4().hex[:8]}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | warm.Forked | None = None

    def start(self) -> None:
        """Start, or start again."""
        self.process = warm.forked(warm.Order(self.arguments, self.environment, str(ROOT), str(self.log)))
        if self.process is not None:
            return
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *self.arguments],
                cwd=ROOT, env=self.environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def revive(self) -> None:
        """Start it again if it was killed."""
        if self.was_killed:
            self.start()

    def stop(self) -> None:
        """End it, however it is."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.resume()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                self.process.wait()

    def pause(self) -> None:
        """Let it and its children do nothing, as a machine without time for them would."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on; what they held a lease for has run out."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """It and its children die at once, as their host would."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.killpg(self.process.pid, number)  # it leads a session of its own

    @property
    def was_killed(self) -> bool:
        """Whether it died of SIGKILL, as at a kill point."""
        return self.process is not None and self.process.poll() == -signal.SIGKILL

    def wait(self, done: Callable[[], bool], *, seconds: float, restart: bool = False) -> None:
        """Wait for a state of the world; a worker that was killed is started again if asked for.

        Raises:
            AssertionError: not reached in time; with the end of the worker's log, and what requests wait for.
        """
        deadline = time.monotonic() + seconds * PATIENCE
        while not done():
            if restart:
                self.revive()
            if time.monotonic() >= deadline:
                late = f"not reached in {seconds * PATIENCE:g} s"
                raise AssertionError(f"{late}; the worker's log ends:\n{self.tail()}\n{not_completed()}")
            assert self.was_killed or self.process is None or self.process.poll() is None, f"the worker ended:\n{self.tail()}"
            time.sleep(0.3)

    def tail(self, characters: int = 6000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-characters:]


def not_completed() -> str:
    """What each request that is not completed stands at, and the end of its last DAGMan's log."""
    # here, since settings are read with models, and conftest sets the environment for them only after it has imported this module
    from dags_app.live import dagman_log_tail
    from dags_app.models import DAG
    from requests_app.models import TERMINAL, Request, RequestStatus

    reported = []
    for request in Request.objects.exclude(status__in=(RequestStatus.COMPLETED, *TERMINAL)):
        reported.append(f"{request.request_name}: {request.status}; {request.hold_reason or request.waiting_for}")
        dag = DAG.objects.filter(workflow__request=request, fence__gt=0).order_by("fence").last()
        if dag is not None:
            log = dagman_log_tail(dag, unit=None, lines=15)
            reported += [f"  {dag.status} {dag.outcome}", *(f"  {line}" for line in log.lines or (log.problem,))]
    return "\n".join(reported)


@contextmanager
def worker(*arguments: str, **settings: Any) -> Iterator[Worker]:
    """A running worker that is gone afterwards."""
    running = Worker(*arguments, **settings)
    running.start()
    try:
        yield running
    finally:
        running.stop()
    forgotten = [line for line in running.log.read_text(errors="replace").splitlines() if "forgotten request" in line]
    assert not forgotten, forgotten[0]


def celery_worker(name: str, **settings: Any) -> AbstractContextManager[Worker]:
    """A Celery worker as in production, with a name and a node of its own."""
    arguments = ("worker", "-c", "2", "--hostname", f"{name}@localhost", "--loglevel", "INFO")
    return worker("-m", "celery", "-A", "wms2", *arguments, WMS2_NODE=name, **settings)


def celery_beat(directory: Path, **settings: Any) -> AbstractContextManager[Worker]:
    """Celery's clock, with a schedule of its own."""
    arguments = ("beat", "--schedule", str(directory / "beat-schedule"), "--pidfile=", "--loglevel", "INFO")
    return worker("-m", "celery", "-A", "wms2", *arguments, **settings)


def web(port: int, **settings: Any) -> AbstractContextManager[Worker]:
    """The web server as in production, at a port of this machine."""
    arguments = ("--config", "python:deploy.run.web", "wms2.wsgi:application")
    return worker("-m", "gunicorn", *arguments, PORT=str(port), **settings)


def stream(port: int, **environment: str) -> AbstractContextManager[Worker]:
    """The process that streams events as in production, at a port of this machine."""
    arguments = ("--config", "python:deploy.run.stream", "wms2.stream.application:from_environment()")
    return worker("-m", "gunicorn", *arguments, STREAM_PORT=str(port), **environment)


def database_url(host: str = "") -> str:
    """The URL of pytest's own database; ``host``: another directory with its socket."""
    settings = connection.settings_dict
    at = f"host={host or settings['HOST']}&port={settings['PORT']}"
    return f"postgresql://{settings['USER']}:{settings['PASSWORD']}@/{settings['NAME']}?{at}"
