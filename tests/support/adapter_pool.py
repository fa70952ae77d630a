"""A place on the pool under test: a schedd, an instance id of our own and a directory for DAGs."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dags_app.planning.dagfiles import fence_inc
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import DagmanAd

_NEEDED = ("CONDOR_CONFIG", "WMS2_COLLECTOR", "WMS2_SCHEDD_NAME", "WMS2_SUBMIT_ROOT")


@dataclass
class Pool:
    """The pool, and what this test has put on it."""

    root: Path
    schedd_name: str
    collector: str
    token_dir: str
    instance: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")

    @classmethod
    def from_environment(cls) -> Pool:
        """Skips the test, saying why, where there is no pool."""
        missing = [name for name in _NEEDED if not os.environ.get(name)]
        if missing:
            pytest.skip(f"no HTCondor pool: {', '.join(missing)} not set")
        return cls(
            root=Path(os.environ["WMS2_SUBMIT_ROOT"]),
            schedd_name=os.environ["WMS2_SCHEDD_NAME"],
            collector=os.environ["WMS2_COLLECTOR"],
            token_dir=os.environ.get("WMS2_CONDOR_TOKEN_DIR", ""),
        )

    def adapter(self, instance: str | None = None, *, owner: str = "", token_dir: str = "", **settings: float) -> HtcondorAdapter:
        tokens = token_dir or self.token_dir
        whose: dict[str, str] = {"instance": instance or self.instance, "owner": owner, "token_dir": tokens}
        return HtcondorAdapter(self.schedd_name, self.collector, **whose, **settings)

    def dag(self, seconds: int = 300, dag_id: str = "") -> Dag:
        """A DAG of one unit with two jobs, the second waiting for the first; written but not submitted."""
        directory = self.root / self.instance / uuid.uuid4().hex
        (directory / "mg_000000").mkdir(parents=True)
        (directory / "workflow.dag").write_text("SUBDAG EXTERNAL mg_000000 group.dag DIR mg_000000\nPRIORITY mg_000000 7\n")
        dag = Dag(directory, self.instance, dag_id or uuid.uuid4().hex)
        stamps = " ".join(f'My.{name}="\\"{value}\\""' for name, value in dag.stamps().items() if name != "WMS2_Fence")
        (directory / "mg_000000/group.dag").write_text(
            f'JOB first job.sub\nVARS first seconds="0"\nJOB second job.sub\nVARS second seconds="{seconds}"\n'
            f"VARS ALL_NODES {stamps}\nPARENT first CHILD second\nINCLUDE ../fence.dag.inc\n"
        )
        (directory / "mg_000000/job.sub").write_text(
            "universe = vanilla\nexecutable = /bin/sleep\narguments = $(seconds)\nlog = $(JOB).log\nshould_transfer_files = NO\n"
            "request_memory = 16\nrequest_disk = 1\nqueue\n"
        )
        (directory / "fence.dag.inc").write_text(fence_inc(1))
        return dag


@dataclass
class Dag:
    """One DAG directory and the stamps it is submitted with."""

    directory: Path
    instance: str
    dag_id: str

    def stamps(self, fence: int = 1) -> dict[str, str | int]:
        return {
            "WMS2_Instance": self.instance,
            "WMS2_Request": "user_Task_1",
            "WMS2_DagID": self.dag_id,
            "WMS2_Fence": fence,
        }

    def submit(self, adapter: HtcondorAdapter, fence: int = 1, priority: int = 5000) -> int:
        (self.directory / "fence.dag.inc").write_text(fence_inc(fence))
        return adapter.submit_dag(self.directory, "workflow.dag", self.stamps(fence), priority)


def jobs_running(ads: list[DagmanAd]) -> int:
    """Node jobs that inner DAGMans report as running, once their first, which takes no time, is done."""
    return sum(ad.jobs_running or 0 for ad in ads if ad.parent_cluster is not None and ad.nodes_done)
