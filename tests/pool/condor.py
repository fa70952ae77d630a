"""The pool that CONDOR_CONFIG names, through HTCondor's own tools, as an ordinary user who may own jobs."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dags_app.planning.writer import write_fence
from tests.pool import condor
from tests.support.side_by_side import PATIENCE

#: Who owns jobs when the tests run as root, who may not.
JOB_OWNER = "wms2"


def missing() -> str | None:
    """Why no pool can be used, or None."""
    if not os.environ.get("CONDOR_CONFIG"):
        return "CONDOR_CONFIG names no pool"
    if not shutil.which("condor_submit_dag"):
        return "HTCondor's tools are not on PATH"
    return None


def run(*command: str, directory: Path | None = None) -> str:
    """Standard output of a command run as the job owner."""
    result = subprocess.run(_as_owner(command), cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)} failed ({result.returncode}): {result.stdout}{result.stderr}")
    return result.stdout


def _as_owner(command: tuple[str, ...]) -> list[str]:
    if os.geteuid() != 0:
        return list(command)
    owner = pwd.getpwnam(JOB_OWNER)
    keep = [f"{name}={os.environ[name]}" for name in ("PATH", "CONDOR_CONFIG")]
    drop = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--init-groups", "--reset-env"]
    return [*drop, "env", f"HOME={owner.pw_dir}", *keep, *command]


def give(directory: Path) -> None:
    """Make the job owner own a directory tree."""
    if os.geteuid() == 0:
        for path in (directory, *directory.rglob("*")):
            owner = pwd.getpwnam(JOB_OWNER)
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)  # a test may point at a device


def submit(directory: Path, *options: str) -> int:
    """Submit ``workflow.dag``; the outer DAGMan's cluster."""
    text = run("condor_submit_dag", *options, "workflow.dag", directory=directory)
    found = re.search(r"submitted to cluster (\d+)", text)
    assert found, text
    return int(found.group(1))


def queued(cluster: int) -> bool:
    """Whether the job is in the queue."""
    return bool(run("condor_q", "-all", "-nobatch", "-constraint", f"ClusterId == {cluster}", "-af", "ClusterId").strip())


def wait_gone(cluster: int, *, seconds: float) -> None:
    """Wait until the job has left the queue."""
    deadline = time.monotonic() + seconds * PATIENCE
    while queued(cluster):
        if time.monotonic() > deadline:
            run("condor_rm", str(cluster))
            raise AssertionError(f"job {cluster} was still in the queue after {seconds * PATIENCE:.0f} s; removed")
        time.sleep(0.5)


def history(constraint: str) -> list[dict[str, Any]]:
    """Ads of jobs that have left the queue, oldest first."""
    text = run("condor_history", "-constraint", constraint, "-json")
    return sorted(json.loads(text or "[]"), key=lambda ad: int(ad["ClusterId"]))


@dataclass(frozen=True)
class RunningDag:
    """A rendered directory and how to run it."""

    dag_id: str
    directory: Path

    def plan(self, unit: str, node: str, text: str) -> None:
        """What the stand-in does in a node."""
        path = self.directory / unit / "plan" / node
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        condor.give(path.parent)

    def submit(self, fence: int, *options: str) -> int:
        """Submit with a fence; the outer DAGMan's cluster."""
        write_fence(self.directory, fence)
        condor.give(self.directory)
        return condor.submit(self.directory, "-append", f"My.WMS2_Fence = {fence}", *options)

    def starts(self, unit: str) -> list[str]:
        """Nodes that the stand-in started in a unit, in order."""
        log = self.directory / unit / "starts.log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def sites(self, unit: str) -> set[str]:
        """Sites where jobs of a unit ran."""
        return {line.split()[2] for line in (self.directory / unit / "starts.log").read_text().splitlines()}

    def ads(self, constraint: str) -> list[dict[str, Any]]:
        """Finished jobs of this DAG, DAGMans included, oldest first."""
        return condor.history(f'WMS2_DagID == "{self.dag_id}" && ({constraint})')

    def outer(self, cluster: int) -> tuple[Any, ...]:
        """How the outer DAGMan ended. Numbers of a queue that a test has lost come again, so the directory counts too."""
        (ad,) = condor.history(f'ClusterId == {cluster} && Iwd == "{self.directory}"')
        return ad["JobStatus"], ad.get("ExitCode"), ad["DAG_Status"]
