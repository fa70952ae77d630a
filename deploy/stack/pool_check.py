"""Run the hand-written example DAG on a pool and look at what it made."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from deploy.htcondor.sites import SITES
from deploy.stack.errors import StackError

EXAMPLE = Path(__file__).resolve().parents[1] / "htcondor/example"


def _ask(directory: Path, environment: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of HTCondor to its end."""
    return subprocess.run(command, cwd=directory, env=dict(environment), capture_output=True, text=True, check=False, timeout=60)


def submit(directory: Path, environment: Mapping[str, str]) -> int:
    """Copy the example there and submit it; returns the outer DAGMan's cluster."""
    shutil.copytree(EXAMPLE, directory, dirs_exist_ok=True)
    result = _ask(directory, environment, "condor_submit_dag", "workflow.dag")
    found = re.search(r"submitted to cluster (\d+)", result.stdout)
    if result.returncode != 0 or not found:
        raise StackError(f"condor_submit_dag failed: {result.stdout}{result.stderr}")
    return int(found.group(1))


def outcome(cluster: int, directory: Path, environment: Mapping[str, str], seconds: float) -> tuple[str, ...]:
    """JobStatus, ExitCode and DAG_Status of a DAGMan job that has left the queue, from the schedd's history.

    The directory tells it from older jobs: a schedd that lost its queue gives the same cluster numbers again.
    """
    constraint = f'ClusterId == {cluster} && Iwd == "{directory.resolve()}"'
    shown = ("-limit", "1", "-af", "JobStatus", "ExitCode", "DAG_Status")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = _ask(directory, environment, "condor_history", "-constraint", constraint, *shown)
        if result.returncode == 0 and result.stdout.split():
            return tuple(result.stdout.split())
        time.sleep(0.5)
    raise StackError(f"the example DAG (cluster {cluster}) did not end within {seconds:.0f} s")


def verify(directory: Path) -> str:
    """Check the merged file: every event once, all from the elected site. Returns the site."""
    unit = directory / "mg_000000"
    elected = (unit / "site.inc").read_text().split()[-1]
    if elected not in {site.cms_name for site in SITES}:
        raise StackError(f"the landing job elected {elected!r}, which is no site of the pool")
    rows = [line.split() for line in (unit / "merged.txt").read_text().splitlines()]
    if [int(row[0]) for row in rows] != list(range(1, 101)):
        raise StackError(f"{unit / 'merged.txt'} does not hold the events 1 to 100 once each")
    if {row[1] for row in rows} != {elected}:
        raise StackError(f"{unit / 'merged.txt'} has events from another site than the elected {elected}")
    return elected


def run_example(directory: Path, environment: Mapping[str, str], seconds: float = 300.0) -> str:
    """Submit the example, wait for its end and verify; returns the elected site."""
    cluster = submit(directory, environment)
    ended = outcome(cluster, directory, environment, seconds)
    if ended not in (("4", "0", "0"), ("4", "0", "undefined")):  # a schedd may miss DAGMan's last word on its ad
        log = directory / "workflow.dag.dagman.out"
        raise StackError(f"the example DAG ended with JobStatus, ExitCode, DAG_Status = {ended}: see {log}")
    return verify(directory)
