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
from pathlib import Path

import pytest

from deploy.stack import process
from deploy.stack.environment import SECOND_CONFIG
from sites_app.models import Pool, Schedd, ScheddState
from tests.support.pool_processes import PoolProcesses
from tests.support.waiting import until
from wms2.runtime import clock


class SecondPool(PoolProcesses):
    """The pool, and how it is reached."""

    def __init__(self, config: Path) -> None:
        text = config.read_text()
        self.directory, self.config = config.parent, config
        self.name, self.schedd_name, port = (
            re.findall(rf"^{key} = (.+)$", text, re.MULTILINE)[0] for key in ("COLLECTOR_NAME", "SCHEDD_NAME", "POOL_PORT")
        )
        self.collector = f"127.0.0.1:{port}"
        self.token_dir = str(self.directory / "client-tokens")
        own = {"CONDOR_CONFIG": str(config), process.MARKER: str(self.directory.parent)}
        super().__init__({name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG") if name in os.environ} | own)
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

    def master_pid(self) -> int:
        """As it was started."""
        assert self.master is not None
        return self.master.pid

    def kill(self) -> None:
        """As above; nobody starts it again before ``start``."""
        super().kill()
        assert self.master is not None
        self.master.wait(10)

    def stop(self) -> None:
        """End it, however it is; what is in its queue stays there."""
        if self.master is not None and self.master.poll() is None:
            self.signal(signal.SIGCONT)
            self.master.send_signal(signal.SIGQUIT)
            process.wait_or_kill(self.master, 60)


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
