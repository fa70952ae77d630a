"""The loopback HTCondor pool as a service: one condor_master in the foreground."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.htcondor import pool as condor
from deploy.htcondor.sites import SITES
from deploy.stack.services.base import Service


def _ask(pool: condor.Pool, environment: Mapping[str, str], *command: str) -> list[str] | None:
    """Lines a tool printed; None when the daemon it asks does not answer yet."""
    try:
        argv = [str(pool.release.bin / command[0]), *command[1:]]
        result = subprocess.run(argv, env=dict(environment), capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return None
    return result.stdout.split() if result.returncode == 0 else None


def problem(pool: condor.Pool, environment: Mapping[str, str]) -> str | None:
    """None when every site's slot and the schedd are known to the collector and the schedd answers a query."""
    slots = _ask(pool, environment, "condor_status", "-af", "GLIDEIN_CMSSite")
    if slots is None:
        return "the collector does not answer"
    missing = {site.cms_name for site in SITES} - set(slots)
    if missing:
        return f"no slot yet for {', '.join(sorted(missing))}"
    if not _ask(pool, environment, "condor_status", "-schedd", "-af", "Name"):
        return "the schedd has not reported to the collector"
    if _ask(pool, environment, "condor_q", "-allusers", "-totals") is None:
        return "the schedd does not answer a query"
    return None


def service(pool: condor.Pool, base_environment: Mapping[str, str]) -> Service:
    """The pool's service. Master's own log is ``log/MasterLog`` in the pool directory."""
    environment = {**base_environment, **pool.environment()}
    return Service(
        name=pool.directory.name.rpartition("-")[0],
        argv=(pool.release.sbin / "condor_master", "-f", "-pidfile", pool.directory / "run/master.pid"),
        log=Path(pool.directory / "log/MasterLog.out"),
        environment=environment,
        cwd=pool.directory,
        prepare=lambda: condor.configure(pool),
        problem=lambda: problem(pool, environment),
        stop_signal=signal.SIGQUIT,  # fast shutdown: running jobs are evicted and stay in the queue
        stop_seconds=60.0,
    )
