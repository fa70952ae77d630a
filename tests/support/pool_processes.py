"""The processes of a pool of the test stack: frozen, cut off, killed, and asked whether they serve."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import until

_SITES = 4


class PoolProcesses:
    """Of the pool whose configuration the environment names."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def master_pid(self) -> int:
        """Of its master, which has all others as children."""
        return int((Path(self.environment["CONDOR_CONFIG"]).parent / "run/master.pid").read_text())

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

    @contextmanager
    def matching_nothing(self) -> Iterator[None]:
        """For the length of the block no job that waits gets a slot; everything else is as ever."""
        with self._stopped("condor_negotiator"):
            yield

    def kill(self) -> None:
        """All its processes die at once, jobs too, as with their host."""
        # jobs whose slot died with them: their schedd would look for them for 40 minutes
        self.run("condor_qedit", "-constraint", "JobUniverse == 5", "JobLeaseDuration", "5")
        self.signal(signal.SIGSTOP)  # so that none begins another meanwhile
        master = self.master_pid()
        below = list(_descendants(master))
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # a DAGMan that begins while the one before it still dies, or is a zombie, takes itself for a second one, and gives up
        until(lambda: not any(_lives(pid) or _is_dagman(pid) for pid in below), "all of them are dead")
        os.kill(master, signal.SIGKILL)

    @contextmanager
    def _stopped(self, program: str) -> Iterator[None]:
        self.signal(signal.SIGSTOP, program)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT, program)
            until(self.serves, "the pool serves again")

    def signal(self, number: int, program: str = "") -> None:
        """To every process of the pool, daemons, DAGMans and jobs, or to those of one program."""
        master = self.master_pid()
        for pid in [master, *_descendants(master)]:
            if not program or _says(pid, "comm").strip() == program[:15]:  # as much as the system keeps
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def _descendants(pid: int) -> Iterator[int]:
    for child in map(int, _says(pid, f"task/{pid}/children").split()):
        yield child
        yield from _descendants(child)


def _is_dagman(pid: int) -> bool:
    """Also of one that has ended, until its parent has waited for it."""
    return _says(pid, "comm").startswith("condor_schedun")


def _lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    state = _says(pid, "stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


def _says(pid: int, file: str) -> str:
    """What the system says of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""
