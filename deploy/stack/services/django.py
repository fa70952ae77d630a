"""WMS2's own processes: web, stream, Celery worker, Celery beat and Flower; and the management commands run before them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.run import healthy
from deploy.stack.services.base import Place, Problem, Service

METRICS = "metrics"
#: Kinds of processes that count (docs/api.md, Metrics).
COUNTING = ("web", "stream", "worker", "verbs", "ticker", "beat")
WORKER_NAME = "wms2@localhost"
TICKER_NAME = "ticker@localhost"
VERBS_NAME = "verbs@localhost"
# Two commands in one process: most of the time of each is Django's start.
PREPARE = (
    "import django; django.setup(); from django.core.management import call_command; "
    "call_command('migrate', interactive=False); call_command('collectstatic', interactive=False, verbosity=0)"
)
#: What the database holds before the first request, and the administrator; the password is on no command line.
FIRST_ROWS = """
import os, sys, django
django.setup()
from django.core.management import call_command
call_command("wms2_init")
from wms2.identities.people import administrator_ensure
password = os.environ["WMS2_ADMIN_PASSWORD"]
administrator_ensure(name=sys.argv[1], password=password, actor="set-up", reason="the stack's administrator")
"""
#: A user without a role, who may read, and a new token of theirs in a file; the one of the last start is revoked.
READER_MADE = """
import sys, django
django.setup()
from pathlib import Path
from django.contrib.auth import get_user_model
from deploy.stack.identity import write_private
from wms2.identities.people import user_create
from wms2.identities.tokens import NewToken, token_make, token_revoke
from wms2.models import PersonalToken
name, file = sys.argv[1:]
who = {"actor": "set-up", "reason": "reads the metrics"}
owner = get_user_model().objects.filter(username=name).first() or user_create(name=name, password=None, **who)
for last in PersonalToken.objects.filter(owner=owner, revoked_at=None):
    token_revoke(token=last, **who)
write_private(Path(file), token_make(owner=owner, new=NewToken("metrics"), actor="set-up")[1])
"""


@dataclass(frozen=True, slots=True)
class Wms2:
    """The WMS2 of one stack. The environment of ``place`` is complete: PATH and the settings."""

    place: Place
    web_port: int
    flower_port: int
    stream_port: int

    def manage(self, *arguments: str) -> None:
        """Run a management command to its end; output in ``logs/manage-<command>.log``."""
        self.place.python(f"manage-{arguments[0]}", "manage.py", *arguments)

    def first_rows(self, name: str, password: str) -> None:
        """What WMS2's database holds before its first request, and the administrator, who gets this password."""
        self.place.python("first-rows", "-c", FIRST_ROWS, name, seconds=120, WMS2_ADMIN_PASSWORD=password)

    def reader_token(self, name: str, file: Path) -> None:
        """A token of a user of this name, who may only read, goes into a file of the owner's alone."""
        self.place.python("reader-token", "-c", READER_MADE, name, file, seconds=120)

    def metrics_begin(self) -> None:
        """No counters yet, and a directory for each kind of process; called before any of them runs."""
        root = self.place.directory / METRICS
        shutil.rmtree(root, ignore_errors=True)
        for kind in COUNTING:
            (root / kind).mkdir(parents=True)

    def _service(self, name: str, program: str, *arguments: str, problem: Problem) -> Service:
        service = self.place.service(name, self.place.layout.venv / "bin" / program, *arguments, problem=problem)
        environment = dict(service.environment)
        if name in COUNTING:  # not among the settings: a person's shell is not one of these processes
            root = self.place.directory / METRICS
            environment |= {"WMS2_METRICS_ROOT": str(root), "PROMETHEUS_MULTIPROC_DIR": str(root / name)}
        # a worker ends its tasks first; what takes longer is repeated by the next one
        return replace(service, environment=environment, stop_seconds=20.0)

    def web(self) -> Service:
        url = f"http://127.0.0.1:{self.web_port}/admin/login/"
        options = ("--config", "python:deploy.run.web", "--bind", f"127.0.0.1:{self.web_port}")
        service = self._service("web", "gunicorn", "wms2.wsgi:application", *options, problem=lambda: healthy.problem(url))
        return replace(service, prepare=lambda: self.place.python("migrate", "-c", PREPARE))

    def stream(self) -> Service:
        """Server-sent events; without a proxy in front it is reached at its own port."""
        url = f"http://127.0.0.1:{self.stream_port}/livez"
        options = ("--config", "python:deploy.run.stream", "--bind", f"127.0.0.1:{self.stream_port}")
        application = "wms2.stream.application:from_environment()"
        return self._service("stream", "gunicorn", application, *options, problem=lambda: healthy.problem(url))

    def _ping_worker(self) -> str | None:
        place = self.place
        argv = [str(place.layout.venv / "bin/celery"), "-A", "wms2", "inspect", "ping", "--timeout", "10", "-d", WORKER_NAME]
        try:
            subprocess.run(
                argv, env=dict(place.environment), cwd=place.layout.source, capture_output=True, check=True, timeout=60
            )
        except subprocess.SubprocessError:
            return "it does not answer a Celery ping"
        return None

    def _unready(self, name: str, hostname: str) -> Problem:
        """Whether a Celery worker that is started now has said that it listens."""
        log = self.place.log(name)
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
        return self._alone("ticker", "ticks", TICKER_NAME)

    def verbs(self) -> Service:
        """What operators have just asked for, alone as well."""
        return self._alone("verbs", "verbs", VERBS_NAME)

    def _alone(self, name: str, queue: str, hostname: str) -> Service:
        options = ("worker", "-E", "-Q", queue, "-P", "solo", "--hostname", hostname, "--loglevel", "INFO")
        return self._service(name, "celery", "-A", "wms2", *options, problem=self._unready(name, hostname))

    def beat(self) -> Service:
        schedule = self.place.directory / "celery/beat-schedule"
        schedule.parent.mkdir(parents=True, exist_ok=True)

        def problem() -> str | None:
            # Beat answers no question; it writes its schedule once it runs.
            return None if list(schedule.parent.glob("beat-schedule*")) else "it has not written its schedule"

        options = ("beat", "--schedule", str(schedule), "--pidfile=", "--loglevel", "INFO")
        return self._service("beat", "celery", "-A", "wms2", *options, problem=problem)

    def flower(self) -> Service:
        """Flower, which asks the web server who is signed in."""
        url = f"http://127.0.0.1:{self.flower_port}/healthcheck"
        config = self.place.layout.source / "deploy/run/flower_config.py"
        options = ("flower", "--address=127.0.0.1", f"--port={self.flower_port}", f"--conf={config}")
        service = self._service("flower", "celery", "-A", "wms2", *options, problem=lambda: healthy.problem(url))
        return replace(service, environment={**service.environment, "WMS2_WEB_URL": f"http://127.0.0.1:{self.web_port}"})
