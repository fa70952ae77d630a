"""A schedd for site jobs that runs what it is given at once, with the real payload, against a workbench's storage."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.payload_schemas import validate
from wms2.adapters.types import FoundDag, HistoryAd, JobStatus
from wms2.errors import ServiceUnavailable

#: Of jobs, beside what the pool gives them.
ENVIRONMENT = {"WMS2_STAGE_OUT_PAUSES": ""}


def run_payload(directory: Path, root: Path, site: str, cluster: int) -> subprocess.CompletedProcess[bytes]:
    """What HTCondor would do with a site job whose submit directory this is."""
    scratch = root / "execute" / str(cluster)
    scratch.mkdir(parents=True)
    for name in ("wms2_payload.pyz", "task.json"):
        shutil.copy(directory / name, scratch)
    unit = 'WMS2_Unit = "site"\nWMS2_Fence = 0\n'
    (scratch / ".job.ad").write_text(f'ClusterId = {cluster}\nProcId = 0\nGlobalJobId = "schedd@test#1"\n{unit}')
    (scratch / ".machine.ad").write_text(f'GLIDEIN_CMSSite = "{site}"\n')
    ads = {"_CONDOR_JOB_AD": str(scratch / ".job.ad"), "_CONDOR_MACHINE_AD": str(scratch / ".machine.ad")}
    command = [str(scratch / "wms2_payload.pyz"), "site", "--node", "site", "--attempt", "0"]
    environment = {"PATH": f"{root}/bin:/usr/bin:/bin", "SITECONF_ROOT": str(root / "siteconf"), **ads, **ENVIRONMENT}
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, check=False)
    (directory / "site.err").write_bytes(done.stderr)
    task = json.loads((directory / "task.json").read_text())
    validate(task["schema"].removeprefix("wms2.").partition("/")[0], task)
    if (scratch / "result.json").exists():
        validate("site_result", json.loads((scratch / "result.json").read_text()))
        shutil.copy(scratch / "result.json", directory)
    return done


@dataclass
class SiteSchedd:
    """Takes the place of the HTCondor adapter. ``silent``: does not answer; ``waiting``: jobs stay idle until it is emptied."""

    root: Path
    silent: bool = False
    waiting: bool = False
    loses: bool = False
    submitted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    _jobs: dict[str, tuple[int, Path, str]] = field(default_factory=dict)
    _ended: dict[str, int] = field(default_factory=dict)

    def __call__(self, *place: str) -> SiteSchedd:
        return self

    def submit_job(self, submit_dir: Path, text: str, attributes: Mapping[str, str | int], begun: float) -> int:
        self._answer()
        job, cluster = str(attributes["WMS2_DagID"]), len(self.submitted) + 1
        self.submitted.append(job)
        (site,) = re.findall(r'My.WMS2_Site = "(.*)"', text)
        if not self.loses:
            self._jobs[job] = (cluster, submit_dir, site)
        return cluster

    def find_job(self, job_id: str, since: datetime) -> FoundDag | None:
        self._answer()
        if job_id not in self._jobs:
            return None
        cluster, directory, site = self._jobs[job_id]
        if self.waiting and job_id not in self._ended:
            return FoundDag(cluster, None, JobStatus.IDLE, (cluster,), None)
        if job_id not in self._ended:
            self._ended[job_id] = run_payload(directory, self.root, site, cluster).returncode
        ad: dict[str, Any] = {"cluster": cluster, "dag_id": job_id, "request_name": "", "fence": None, "queued_at_seconds": 0}
        ended = HistoryAd(**ad, job_status=4, in_recovery=False, exit_code=self._ended[job_id], remove_reason="")
        return FoundDag(cluster, None, JobStatus.COMPLETED, (), ended)

    def remove_job(self, cluster: int, job_id: str, reason: str) -> int:
        self._answer()
        self.removed.append(job_id)
        self._ended[job_id] = -1
        return 1

    def _answer(self) -> None:
        if self.silent:
            raise ServiceUnavailable("htcondor", "test", "it is silent")
