"""WMS2's own processes: web, Celery worker, Celery beat and Flower; and the management commands run before them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.stack.paths import Layout
from deploy.stack.services import http
from deploy.stack.services.base import Problem, Service, nothing
from deploy.stack.steps import run_logged

METRICS = "metrics"
#: Kinds of processes that count (docs/api.md, Metrics).
COUNTING = ("web", "worker", "ticker", "beat")
WORKER_NAME = "wms2@localhost"
TICKER_NAME = "ticker@localhost"
# Two commands in one process: most of the time of each is Django's start.
PREPARE = (
    "import django; django.setup(); from django.core.management import call_command; "
    "call_command('migrate', interactive=False); call_command('collectstatic', interactive=False, verbosity=0)"
)


@dataclass(frozen=True, slots=True)
class Wms2:
    """The WMS2 of one stack. ``environment`` is complete: PATH and the settings."""

    layout: Layout
    directory: Path
    environment: Mapping[str, str]
    web_port: int
    flower_port: int

    def _log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def manage(self, *arguments: str, seconds: float = 300.0) -> None:
        """Run a management command to its end; output in ``logs/manage-<command>.log``."""
        argv = (str(self.layout.python), "manage.py", *arguments)
        log = self._log(f"manage-{arguments[0]}")
        run_logged(argv, log=log, environment=self.environment, cwd=self.layout.source, seconds=seconds)

    def metrics_begin(self) -> None:
        """No counters yet, and a directory for each kind of process; called before any of them runs."""
        root = self.directory / METRICS
        shutil.rmtree(root, ignore_errors=True)
        for kind in COUNTING:
            (root / kind).mkdir(parents=True)

    def _counting(self, name: str) -> dict[str, str]:
        """Where a process keeps its counters. Not among the settings: a person's shell is none of these processes."""
        if name not in COUNTING:
            return {}
        root = self.directory / METRICS
        return {"WMS2_METRICS_ROOT": str(root), "PROMETHEUS_MULTIPROC_DIR": str(root / name)}

    def _service(
        self, name: str, program: str, *arguments: str, problem: Problem, prepare: Callable[[], None] = nothing
    ) -> Service:
        return Service(
            name=name,
            argv=(self.layout.venv / "bin" / program, *arguments),
            log=self._log(name),
            environment={**self.environment, **self._counting(name)},
            cwd=self.layout.source,
            problem=problem,
            prepare=prepare,
            stop_seconds=20.0,  # a worker ends its tasks first; what takes longer is repeated by the next one
        )

    def _prepare(self) -> None:
        argv = (str(self.layout.python), "-c", PREPARE)
        run_logged(argv, log=self._log("migrate"), environment=self.environment, cwd=self.layout.source, seconds=300)

    def web(self) -> Service:
        url = f"http://127.0.0.1:{self.web_port}/admin/login/"
        options = ("--config", "python:deploy.run.web", "--bind", f"127.0.0.1:{self.web_port}")
        argv = ("gunicorn", "wms2.wsgi:application", *options)
        return self._service("web", *argv, problem=lambda: http.problem(url), prepare=self._prepare)

    def _ping_worker(self) -> str | None:
        argv = [str(self.layout.venv / "bin/celery"), "-A", "wms2", "inspect", "ping", "--timeout", "10", "-d", WORKER_NAME]
        try:
            result = subprocess.run(
                argv, env=dict(self.environment), cwd=self.layout.source, capture_output=True, check=False, timeout=60
            )
        except subprocess.TimeoutExpired:
            return "it does not answer a Celery ping"
        return None if result.returncode == 0 else "it does not answer a Celery ping"

    def _unready(self, name: str, hostname: str) -> Problem:
        """Whether a Celery worker that is started now has said that it listens."""
        log = self._log(name)
        begins_at = log.stat().st_size if log.exists() else 0

        def problem() -> str | None:
            with log.open("rb") as stream:
                stream.seek(begins_at)
                said = f"{hostname} ready.".encode() in stream.read()
            return None if said else "it has not said that it is ready"

        return problem

    def worker(self) -> Service:
        """Evaluations and effects."""
        unready = self._unready("worker", WORKER_NAME)
        # A ping costs a second of CPU: it is sent once the worker says that it listens.
        options = ("worker", "-E", "-Q", "celery,effects", "-c", "2", "--hostname", WORKER_NAME, "--loglevel", "INFO")
        return self._service("worker", "celery", "-A", "wms2", *options, problem=lambda: unready() or self._ping_worker())

    def ticker(self) -> Service:
        """Ticks alone: neither effects nor evaluations keep them waiting. One process, which answers no ping while it ticks."""
        options = ("worker", "-E", "-Q", "ticks", "-P", "solo", "--hostname", TICKER_NAME, "--loglevel", "INFO")
        return self._service("ticker", "celery", "-A", "wms2", *options, problem=self._unready("ticker", TICKER_NAME))

    def beat(self) -> Service:
        schedule = self.directory / "celery/beat-schedule"
        schedule.parent.mkdir(parents=True, exist_ok=True)

        def problem() -> str | None:
            # Beat answers no question; it writes its schedule once it runs.
            return None if list(schedule.parent.glob("beat-schedule*")) else "it has not written its schedule"

        options = ("beat", "--schedule", str(schedule), "--pidfile=", "--loglevel", "INFO")
        return self._service("beat", "celery", "-A", "wms2", *options, problem=problem)

    def flower(self, login: str) -> Service:
        """Flower, which asks for ``login`` (``name:password``): whoever gets in may stop workers and revoke tasks."""
        url = f"http://127.0.0.1:{self.flower_port}/healthcheck"
        config = self.layout.source / "deploy/run/flower_config.py"
        options = ("flower", "--address=127.0.0.1", f"--port={self.flower_port}", f"--conf={config}")
        service = self._service("flower", "celery", "-A", "wms2", *options, problem=lambda: http.problem(url))
        # In the environment, because a command line can be read by everybody on the machine.
        return replace(service, environment={**service.environment, "FLOWER_BASIC_AUTH": login})
