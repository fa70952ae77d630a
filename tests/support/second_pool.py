"""A second pool for tests: its own master, collector, negotiator, schedd and startd, the sites and file system of the first.

The stack only configures it (``deploy.stack.stacks``). It runs from the first test that needs it to the end of the session, and
is this session's alone to freeze, cut off and kill: tests with the fixture ``second_pool`` run one by one in one process.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.stack import process
from deploy.stack.environment import SECOND_CONFIG
from sites_app.models import Pool, Schedd, ScheddState
from tests.support.services import until
from wms2 import clock

_SITES = 4


class SecondPool:
    """The pool's processes, and how it is reached."""

    def __init__(self, config: Path) -> None:
        text = config.read_text()
        self.directory, self.config = config.parent, config
        self.name, self.schedd_name, port = (
            re.findall(rf"^{key} = (.+)$", text, re.MULTILINE)[0] for key in ("COLLECTOR_NAME", "SCHEDD_NAME", "POOL_PORT")
        )
        self.collector = f"127.0.0.1:{port}"
        self.token_dir = str(self.directory / "client-tokens")
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG") if name in os.environ},
            "CONDOR_CONFIG": str(config),
            process.MARKER: str(self.directory.parent),
        }
        self.master: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        master = shutil.which("condor_master")
        assert master is not None
        with (self.directory / "log/MasterLog.out").open("ab") as log:
            argv = (master, "-f", "-pidfile", str(self.directory / "run/master.pid"))
            self.master = process.spawn(
                argv, environment=self.environment, cwd=self.directory, stop_signal=signal.SIGQUIT, output=log, errors=log
            )
        until(self.serves, "the second pool serves", seconds=120)

    def stop(self) -> None:
        """End it, however it is; what is in its queue stays there."""
        if self.master is not None and self.master.poll() is None:
            self._signal(signal.SIGCONT)
            self.master.send_signal(signal.SIGQUIT)
            process.wait_or_kill(self.master, 60)

    def serves(self) -> bool:
        """Whether its sites' slots and its schedd are known, and the schedd answers."""
        slots = self.run("condor_status", "-af", "GLIDEIN_CMSSite")
        known = len(set((slots or "").split())) >= _SITES and self.run("condor_status", "-schedd", "-af", "Name")
        return bool(known) and self.run("condor_q", "-allusers", "-totals") is not None

    def run(self, *command: str) -> str | None:
        """What one of HTCondor's tools says there; None when it fails, or nobody answers."""
        with suppress(subprocess.TimeoutExpired):
            result = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=20)
            return result.stdout if result.returncode == 0 else None
        return None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the length of the block no daemon of it does anything; connections are taken, and nobody answers."""
        with self._stopped(""):
            yield

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """For the length of the block nobody outside reaches it, and what is in its queue goes on."""
        with self._stopped("condor_shared_port"):
            yield

    def kill(self) -> None:
        """All its processes die at once, jobs too, as with their host; nobody starts them again before ``start``."""
        assert self.master is not None
        # jobs whose slot died with them: their schedd would look for them for 40 minutes
        self.run("condor_qedit", "-constraint", "JobUniverse == 5", "JobLeaseDuration", "5")
        self._signal(signal.SIGSTOP)  # so that none begins another meanwhile
        self._signal(signal.SIGKILL)
        self.master.wait(10)

    @contextmanager
    def _stopped(self, program: str) -> Iterator[None]:
        self._signal(signal.SIGSTOP, program)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT, program)
            until(self.serves, "the second pool serves again")

    def _signal(self, number: int, program: str = "") -> None:
        """To every process of the pool, daemons, DAGMans and jobs, or to those of one program."""
        assert self.master is not None
        for pid in [self.master.pid, *_descendants(self.master.pid)]:
            if not program or _says(pid, "comm").strip() == program[:15]:  # as much as the system keeps
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def _descendants(pid: int) -> Iterator[int]:
    for child in map(int, _says(pid, f"task/{pid}/children").split()):
        yield child
        yield from _descendants(child)


def _says(pid: int, file: str) -> str:
    """What the system says of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def second_schedd(pool: SecondPool) -> Schedd:
    """Its schedd as a row, in service, where the first pool's directories are seen."""
    first = Pool.objects.get()
    place = {"collector": pool.collector, "token_dir": pool.token_dir, "file_system": first.file_system}
    row = Pool.objects.create(name=pool.name, **place)
    root = os.environ["WMS2_SUBMIT_ROOT"]
    return Schedd.objects.create(
        name=pool.schedd_name, pool=row, state=ScheddState.ENABLED, submit_root=root, onboarded_at=clock.now()
    )


def second_pool() -> Iterator[SecondPool]:
    """It, running; skips where the stack has none."""
    config = os.environ.get(SECOND_CONFIG, "")
    if not config:
        pytest.skip(f"no second pool ({SECOND_CONFIG} not set); run with `make test`")
    pool = SecondPool(Path(config))
    pool.start()
    try:
        yield pool
    finally:
        pool.stop()
